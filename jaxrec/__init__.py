"""jaxrec: recursive functions in JAX, run in batches and differentiated.

Decorate a recursive function with `rec_fn`, choose between base case and recursion with `cond` or
`switch`, and use the function under `jit`, `grad` and `vmap` like any other.
"""

from jaxrec import data as data
from jaxrec._collect import collect as collect
from jaxrec._errors import (
    CapacityError as CapacityError,
    JaxRecError as JaxRecError,
    RecursionLimitError as RecursionLimitError,
    SignatureError as SignatureError,
    UnsupportedError as UnsupportedError,
)
from jaxrec.executors._choice import executor as executor
from jaxrec.trace._control_flow import cond as cond, switch as switch
from jaxrec.trace._rec_fn import rec_fn as rec_fn
from jaxrec import models as models
from jaxrec import optim as optim

__version__ = "0.1.0"
