"""How the trainer's programs are compiled: the one place for XLA options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax

# Options for `jax.jit(compiler_options=...)` of every program of the trainer.
COMPILER_OPTIONS: Final[dict[str, bool | int | str] | None] = None


def compiled(fun: Callable[..., Any], executor: str, donate: tuple[int, ...] = ()) -> Any:
    """``fun`` as one compiled program, or as it is for an interpreter.

    Args:
        fun: A pure function of pytrees.
        executor: Only ``"graph"`` runs inside a compiled program.
        donate: Positions of the arguments whose buffers the result may take over.
    """
    if executor != "graph":
        return fun
    return jax.jit(fun, donate_argnums=donate, compiler_options=COMPILER_OPTIONS)
