"""ListOps: nested list operations whose value only the tree structure gives away."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from jaxrec.data._arguments import check_integers, check_numbers
from jaxrec.data._tree import NO_LABEL, Tree

_END = "]"


def _median(values: Sequence[int]) -> int:
    """The median, rounded down when it falls between two values."""
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) // 2


def _sum_mod_10(values: Sequence[int]) -> int:
    return sum(values) % 10


_OPERATORS: tuple[tuple[str, Callable[[Sequence[int]], int]], ...] = (
    ("[MIN", min),
    ("[MAX", max),
    ("[MED", _median),
    ("[SM", _sum_mod_10),
)


class _OpenList:
    """A list whose `]` has not come: `((op v1) v2)` so far."""

    def __init__(self, rng: np.random.Generator, max_args: int) -> None:
        word, self.function = _OPERATORS[rng.integers(len(_OPERATORS))]
        self.missing = int(rng.integers(2, max_args + 1))
        self.values: list[int] = []
        self.tree = Tree(NO_LABEL, word)

    def add(self, argument: Tree) -> None:
        self.missing -= 1
        self.values.append(argument.label)
        self.tree = Tree(self.function(self.values), children=(self.tree, argument))

    def close(self) -> Tree:
        return Tree(self.tree.label, children=(self.tree, Tree(NO_LABEL, _END)))


def listops(
    seed: int,
    num: int,
    *,
    max_depth: int = 20,
    max_args: int = 5,
    op_prob: float = 0.25,
) -> list[Tree]:
    """Generates ListOps expressions as binary trees, labelled with the values of their parts.

    An expression is a list: an operator (`[MIN`, `[MAX`, `[MED` for the median, `[SM` for the sum
    modulo 10), two or more arguments, each a digit or another list, and `]`. As in the paper a
    list branches to the left, `(((([MAX 2) 9) 5) ])`, all values are 0 to 9, the median of an even
    number of arguments is rounded down, and the words are the operators, the digits and `]`.

    Every node whose part of the expression has a value is labelled with it: a digit with itself, a
    closed list with its value, and an unclosed one, `(([MAX 2) 9)`, with the value it would have
    if it closed there. Operators and `]` have no label (-1). So ten classes, and a label on most
    nodes; the root's label alone is the paper's task.

    Args:
        seed: Seed; the same one gives the same trees, and a larger `num` only adds some.
        num: How many.
        max_depth: How deep lists may nest, 1 for lists of digits alone.
        max_args: Most arguments of an operator, at least 2; their number is uniform from 2.
        op_prob: Probability that an argument is a list, as long as `max_depth` permits it. The
            paper's 0.25 with five arguments keeps expressions small (an argument begets 0.875
            further ones on average); beyond one they grow until `max_depth` stops them.

    Returns:
        The trees. Every root is a list; the same expression may come twice.

    Raises:
        ValueError: If an argument is out of range.

    Example:
        >>> from jaxrec.data import listops
        >>> trees = listops(3, 2, max_depth=2, max_args=3)
        >>> all(tree.words()[-1] == "]" and 0 <= tree.label <= 9 for tree in trees)
        True

    Source:
        Nangia and Bowman, "ListOps: A Diagnostic Dataset for Latent Tree Learning", NAACL Student
        Research Workshop 2018, section 3.
    """
    check_integers("listops", seed=seed, num=num, max_depth=max_depth, max_args=max_args)
    check_numbers("listops", op_prob=op_prob)
    if seed < 0 or num < 0 or max_depth < 1 or max_args < 2 or not 0 <= op_prob <= 1:
        raise ValueError(
            f"listops: got num={num}, max_depth={max_depth}, max_args={max_args}, "
            f"op_prob={op_prob}, seed={seed}; expected num >= 0, max_depth >= 1, max_args >= 2, "
            "op_prob from 0 to 1 and seed >= 0"
        )
    rng = np.random.default_rng(seed)
    return [_expression(rng, max_depth, max_args, op_prob) for _ in range(num)]


def _expression(rng: np.random.Generator, max_depth: int, max_args: int, op_prob: float) -> Tree:
    unclosed = [_OpenList(rng, max_args)]
    while True:
        innermost = unclosed[-1]
        if not innermost.missing:
            closed = unclosed.pop().close()
            if not unclosed:
                return closed
            unclosed[-1].add(closed)
        elif len(unclosed) < max_depth and rng.random() < op_prob:
            unclosed.append(_OpenList(rng, max_args))
        else:
            digit = int(rng.integers(10))
            innermost.add(Tree(digit, str(digit)))
