"""`rec` with the rules of all primitives, which importing their modules registers."""

from jaxrec.primitives import _rec_backward, _rec_forward, _rec_linear
from jaxrec.primitives._rec import rec, rec_example

__all__ = ["_rec_backward", "_rec_forward", "_rec_linear", "rec", "rec_example"]
