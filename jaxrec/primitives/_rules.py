"""`rec` with the rules of all primitives, which importing their modules registers."""

from jaxrec import _compat
from jaxrec.invocation._results import outcome_types
from jaxrec.primitives import _rec_backward, _rec_forward, _rec_linear
from jaxrec.primitives._primitives import (
    rec_backward_p,
    rec_example_p,
    rec_forward_p,
    rec_linear_p,
    rec_p,
    rec_second_p,
)
from jaxrec.primitives._rec import rec, rec_example

for _primitive in (rec_p, rec_example_p, rec_linear_p, rec_backward_p, rec_second_p):
    _compat.shows_nan(_primitive, lambda **_: None)
# What residuals hold behind the rows in use is nobody's.
_compat.shows_nan(rec_forward_p, lambda params, wrt: len(outcome_types(params)))

__all__ = ["_rec_backward", "_rec_forward", "_rec_linear", "rec", "rec_example"]
