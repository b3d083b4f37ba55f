"""The errors that jaxrec raises.

Each message names the user's function, what was got and what was expected, the call path where
there is one, and what to change. Errors found while a compiled program runs reach the user as
`jax.errors.JaxRuntimeError` with the same message, or in the other classes of `RUN_TIME_ERRORS`.
"""

from typing import Any

import jax

from jaxrec import _core

RUN_TIME_ERRORS: tuple[type[Exception], ...] = (jax.errors.JaxRuntimeError, ValueError)
"""What JAX raises where a compiled program fails.

Once it has run, a jitted function is dispatched by compiled code, which in several versions of JAX
makes a `ValueError` of every failure that it sees before it returns: that of a small program, or of
any where asynchronous dispatch is off.
"""


class JaxRecError(Exception):
    """Base class of the errors of recursive functions, and the error of a wrong index."""


class SignatureError(JaxRecError, TypeError):
    """Types that disagree: between calls of a function, its branches, or its declaration."""


class CapacityError(JaxRecError, RuntimeError):
    """An invocation made more calls than its tapes hold; the message names the number needed."""


class RecursionLimitError(JaxRecError, RecursionError):
    """A recursion that does not end."""


class UnsupportedError(JaxRecError, TypeError):
    """A program that jaxrec cannot run the way it was asked to."""


_BY_NAME = {
    cls.__name__: cls
    for cls in (JaxRecError, SignatureError, CapacityError, RecursionLimitError, UnsupportedError)
}


def from_runtime(error: Exception) -> JaxRecError | None:
    """Returns the error of jaxrec that an error of a compiled program carries, or None."""
    text = str(error)
    places = {name: text.find(f"{name}: ") for name in _BY_NAME}
    found = [place for place in places.values() if place >= 0]
    return _from_message(text[min(found) :]) if found else None


class ErrorsOfTheCore:
    """A context for calls of the core: what it raises becomes an error of jaxrec, in its class.

    A class, since one that is written as a generator takes longer than a short recursion.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: Any, error: BaseException | None, __: Any) -> None:
        if isinstance(error, _core.PlanError):
            raise _from_message(error.args[1]) from None


def _from_message(message: str) -> JaxRecError:
    """Returns the error that a message of the scheduler, `"ClassName: text"`, stands for."""
    name, _, text = message.partition(": ")
    return _BY_NAME[name](text) if name in _BY_NAME else JaxRecError(message)
