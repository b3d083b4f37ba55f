"""Control programs, written by hand, for the tests of the scheduler."""

from __future__ import annotations

from typing import Any

import numpy as np
from core_model import Cell, Function, Program

I32 = "int32"

# tree(i): left[i] < 0 ? leaf(token[i]) : compose(tree(left[i]), tree(right[i]))
TREE = Program(
    outers=((I32, 1), (I32, 1), (I32, 1)),  # token, left, right
    classes=2,  # h and c
    cells=(Cell((), (0, 1), (I32,)), Cell((0, 1, 0, 1), (0, 1))),
    functions=(
        Function(
            control=(I32,),
            data=(),
            results=(0, 1),
            registers=5,
            slots=6,
            code=(
                ("LOAD", 1, 1, [0]),
                ("CONST", 2, I32, 0),
                ("LT", 3, I32, 1, 2),
                ("SWITCH", 3, ["node", "leaf"]),
                ("LABEL", "leaf"),
                ("LOAD", 4, 0, [0]),
                ("FIRE", 0, [4], [], [0, 1]),
                ("JUMP", "end"),
                ("LABEL", "node"),
                ("LOAD", 4, 2, [0]),
                ("CALL", 0, 0, [1], [], [2, 3]),
                ("CALL", 0, 1, [4], [], [4, 5]),
                ("FIRE", 1, [], [2, 3, 4, 5], [0, 1]),
                ("LABEL", "end"),
                ("RETURN", [0, 1]),
            ),
        ),
    ),
)
TREE_NAMES = "tree_lstm\ni\ntree.token\ntree.left\ntree.right"

# even(n, x): n == 0 ? x : odd(n - 1, step(x));  odd(n, x): n == 0 ? x : even(n - 1, x).
# The results pass through every frame, and odd passes x on: only aliases join the steps.
_RECURSE = (
    ("CONST", 1, I32, 0),
    ("EQ", 2, I32, 0, 1),
    ("SWITCH", 2, ["more", "stop"]),
    ("LABEL", "stop"),
    ("RETURN", [0]),
    ("LABEL", "more"),
    ("CONST", 3, I32, 1),
    ("SUB", 4, I32, 0, 3),
)


def _counter(callee: int, site: int, *, fires: bool) -> Function:
    step: tuple[tuple[Any, ...], ...] = (
        (("FIRE", 0, [0], [0], [1]),) if fires else (("ALIAS", 1, 0),)
    )
    call = ("CALL", callee, site, [4], [1], [2])
    return Function((I32,), (0,), (0,), 5, 3, (*_RECURSE, *step, call, ("RETURN", [2])))


EVEN_ODD = Program(
    outers=(),
    classes=1,
    cells=(Cell((0,), (0,), (I32,)),),
    functions=(_counter(1, 7, fires=True), _counter(0, 3, fires=False)),
)
EVEN_ODD_NAMES = "even\nodd\nn\nn"


def random_forest(
    rng: np.random.Generator, trees: int, leaves: int
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Roots and (token, left, right) of random binary trees with up to `leaves` leaves each."""
    token: list[int] = []
    left: list[int] = []
    right: list[int] = []

    def grow(n: int) -> int:
        cut = int(rng.integers(1, n)) if n > 1 else 0
        children = (grow(cut), grow(n - cut)) if n > 1 else (-1, -1)
        token.append(int(rng.integers(0, 1000)))
        left.append(children[0])
        right.append(children[1])
        return len(token) - 1

    roots = [grow(int(rng.integers(1, leaves + 1))) for _ in range(trees)]
    return np.array(roots, np.int32), [np.array(a, np.int32) for a in (token, left, right)]


def lanes_of(outers: list[np.ndarray]) -> np.ndarray:
    """No outer array is batched."""
    return np.array([[0, -1]] * len(outers), np.int64).reshape(-1)
