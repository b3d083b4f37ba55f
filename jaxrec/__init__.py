"""jaxrec: recursive functions in JAX, run in batches and differentiated.

Decorate a recursive function with `rec_fn`, choose between base case and recursion with `cond` or
`switch`, and use the function under `jit`, `grad` and `vmap` like any other.
"""

from jaxrec._call_key import call_key as call_key
from jaxrec._collect import collect as collect
from jaxrec._errors import (
    CapacityError as CapacityError,
)
from jaxrec._errors import (
    JaxRecError as JaxRecError,
)
from jaxrec._errors import (
    RecursionLimitError as RecursionLimitError,
)
from jaxrec._errors import (
    SignatureError as SignatureError,
)
from jaxrec._errors import (
    UnsupportedError as UnsupportedError,
)
from jaxrec._executor import executor as executor
from jaxrec._export import export_checks as export_checks
from jaxrec._rec_fn import rec_fn as rec_fn
from jaxrec.schedule._handlers import register_handlers as register_handlers
from jaxrec.trace._control_flow import cond as cond
from jaxrec.trace._control_flow import switch as switch

# isort: split
# These are written with the names above.
from jaxrec import data as data
from jaxrec import models as models
from jaxrec import optim as optim

__version__ = "0.1.0"
