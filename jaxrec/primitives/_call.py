"""The equation that a recursive call inside a body becomes.

`rec_call` exists only in the jaxprs that tracing hands to the graph stage: it is never evaluated,
and no transformation reaches it, since transformations act on the whole invocation.
"""

from collections.abc import Sequence
from typing import Any

from jax.core import ShapedArray
from jax.extend.core import Primitive

from jaxrec import _compat
from jaxrec._errors import UnsupportedError

rec_call_p = Primitive("rec_call")
rec_call_p.multiple_results = True


def rec_call(callee: Any, operands: Sequence[Any], result: Sequence[ShapedArray]) -> list[Any]:
    """Stages a call of `callee` (an `Instance`) whose results have the types `result`."""
    return rec_call_p.bind(*operands, callee=callee, result=tuple(result))


@rec_call_p.def_abstract_eval
def _abstract_eval(*_: Any, callee: Any, result: tuple[ShapedArray, ...]) -> list[ShapedArray]:
    del callee
    return list(result)


def _unsupported(what: str) -> Any:
    def rule(*_: Any, callee: Any, **__: Any) -> Any:
        raise UnsupportedError(
            f"{what} is applied to a recursive call of {callee.name} inside a recursive body. "
            f"Apply the transformation to the whole function, outside: {what}({callee.name})."
        )

    return rule


_compat.register_jvp(rec_call_p, _unsupported("jax.grad"))
_compat.register_batching(rec_call_p, _unsupported("jax.vmap"))
rec_call_p.def_impl(_unsupported("immediate evaluation"))
