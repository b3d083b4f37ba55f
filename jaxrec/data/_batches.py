"""Minibatches whose shapes repeat, so that an epoch compiles a handful of programs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, overload

import numpy as np

from jaxrec.data._arguments import check_integers, check_numbers, check_type
from jaxrec.data._forest import Forest, pack
from jaxrec.data._packed import Corpus, F, Int32, Packed, pad
from jaxrec.data._tree import Tree
from jaxrec.data._vocabulary import Vocabulary

_Weight = np.ndarray[tuple[int], np.dtype[np.float32]]


class Batch(NamedTuple, Generic[F]):
    """Some trees, packed and padded; a JAX pytree.

    Attributes:
        forest: `size` trees: the real ones, then dummies.
        weight: float32 `[size]`, 1 for a real tree and 0 for a dummy.
        tree: int32 `[size]`, the number of each tree among those given, 0 for a dummy: what else
            belongs to the trees, such as a vector for each, is `vectors[batch.tree]`.
    """

    forest: F
    weight: _Weight
    tree: Int32


def bucket(n: int, base: int = 64, ratio: float = 1.25) -> int:
    """Rounds a size up to a geometric series: `base`, then each `ratio` times the last.

    Arrays padded to these sizes waste at most `ratio - 1` of their length and come in few shapes.

    Args:
        n: The size needed, 0 or more.
        base: The smallest size given.
        ratio: Growth from one size to the next, above 1; each is rounded up to an integer.

    Raises:
        ValueError: If an argument is out of range.
        TypeError: If it is no number.

    Example:
        >>> from jaxrec.data import bucket
        >>> [bucket(n) for n in (1, 64, 65, 1000)]
        [64, 64, 80, 1184]
    """
    check_integers("bucket", n=n, base=base)
    check_numbers("bucket", ratio=ratio)
    if n < 0 or base < 1 or not (1 < ratio < math.inf):
        raise ValueError(
            f"bucket: got n={n}, base={base}, ratio={ratio}; "
            "expected n >= 0, base >= 1 and a finite ratio > 1"
        )
    size = base
    while size < n:
        size = math.ceil(size * ratio)
    return size


@overload
def batches(
    trees: F,
    size: int,
    vocabulary: Vocabulary | None = ...,
    rng: np.random.Generator | int | None = ...,
    *,
    drop_last: bool = ...,
    max_shapes: int = ...,
    base: int = ...,
    ratio: float = ...,
) -> Iterator[Batch[F]]: ...


@overload
def batches(
    trees: Sequence[Tree],
    size: int,
    vocabulary: Vocabulary | None = ...,
    rng: np.random.Generator | int | None = ...,
    *,
    drop_last: bool = ...,
    max_shapes: int = ...,
    base: int = ...,
    ratio: float = ...,
) -> Iterator[Batch[Forest]]: ...


def batches(
    trees: Sequence[Tree] | Packed,
    size: int,
    vocabulary: Vocabulary | None = None,
    rng: np.random.Generator | int | None = None,
    *,
    drop_last: bool = False,
    max_shapes: int = 4,
    base: int = 64,
    ratio: float = 1.25,
) -> Iterator[Batch[Any]]:
    """One epoch of minibatches, every tree in exactly one of them.

    All batches have `size` trees. The last one is filled up with dummies: one-node trees of the
    unknown word (id 0) without a label, each with a node of its own. Their `weight` is 0, so that
    a loss on roots leaves them out, and a loss on labelled nodes has nothing to leave out (models
    that generate trees take the weights: `model.loss(forest, condition, weight)`).

    The node arrays are padded to the sizes of `bucket`. If an epoch needed more than `max_shapes`
    of these, its smallest batches are padded to the smallest size kept. Sizes come from one fixed
    series, hence recur from epoch to epoch. Small batches vary more: give them a larger `ratio`.

    The generator is used once, when this function is called, for the order of the trees: with
    the generator's state from before the call the same epoch can be made again.

    Args:
        trees: Trees, which `pack` makes a `Forest` of; or a forest of any kind, a `Forest` (packing
            once saves time each epoch), an `OrderedForest` or a `DependencyForest`.
        size: Trees in a batch.
        vocabulary: As for `pack`; needed for trees.
        rng: Generator or seed that shuffles the trees; `None` keeps their order.
        drop_last: Whether to leave out a last batch of fewer than `size` trees instead.
        max_shapes: Most distinct shapes in the epoch, 1 or more.
        base: Smallest number of nodes, as for `bucket`.
        ratio: Growth of the numbers of nodes, as for `bucket`.

    Returns:
        The batches, each made when it is asked for.

    Raises:
        ValueError: If `size` or `max_shapes` is below 1, there are no trees or no full batch, the
            vocabulary is missing, or the arrays of a forest are no trees.
        TypeError: If `trees` are neither trees nor a forest.

    Example:
        >>> from jaxrec.data import Tree, Vocabulary, batches
        >>> trees = [Tree(label, "word") for label in range(3)]
        >>> for batch in batches(trees, 2, Vocabulary(["word"])):
        ...     print(batch.forest.label[:2], batch.weight, batch.forest.num_nodes)
        [0 1] [1. 1.] 64
        [ 2 -1] [1. 0.] 64
    """
    check_integers("batches", size=size, max_shapes=max_shapes, base=base)
    if size < 1 or max_shapes < 1:
        raise ValueError(
            f"batches: got size={size}, max_shapes={max_shapes}, expected 1 or more of each"
        )
    corpus = Corpus(_forest(trees, vocabulary), "batches")
    groups = _groups(len(corpus.lengths), size, rng, drop_last)
    needed = [int(corpus.lengths[group].sum()) + size - len(group) for group in groups]
    kept = sorted({bucket(n, base, ratio) for n in needed})[-max_shapes:]
    padded = [next(shape for shape in kept if shape >= n) for n in needed]
    return (_batch(corpus, *plan, size) for plan in zip(groups, padded, strict=True))


def _forest(trees: Sequence[Tree] | Packed, vocabulary: Vocabulary | None) -> Packed:
    if isinstance(trees, Packed):
        return trees
    if not isinstance(trees, Iterable):
        raise TypeError(
            f"batches: got a value of type {type(trees).__name__}, expected a sequence of "
            "jaxrec.data.Tree or a forest, such as pack makes"
        )
    if vocabulary is None:
        raise ValueError("batches: got trees without a vocabulary; pass one, or a packed forest")
    check_type("batches", "vocabulary", vocabulary, Vocabulary)
    return pack(trees, vocabulary)


def _groups(
    num_trees: int, size: int, rng: np.random.Generator | int | None, drop_last: bool
) -> list[Int32]:
    order = np.arange(num_trees, dtype=np.int32)
    if rng is not None:
        try:
            order = np.random.default_rng(rng).permutation(order)
        except (TypeError, ValueError) as error:
            raise type(error)(
                f"batches: got rng={rng!r}, expected a numpy.random.Generator, a seed >= 0 or None"
            ) from error
    end = num_trees - num_trees % size if drop_last else num_trees
    if not end:
        raise ValueError(
            f"batches: got {num_trees} trees, size={size} and drop_last=True, which leaves no "
            "batch; use a smaller size or drop_last=False"
        )
    return [order[start : start + size] for start in range(0, end, size)]


def _batch(corpus: Corpus[F], chosen: Int32, num_nodes: int, size: int) -> Batch[F]:
    forest = pad(corpus.take(chosen, size), num_nodes, "batches")
    weight = (np.arange(size) < len(chosen)).astype(np.float32)
    tree = np.append(chosen, np.zeros(size - len(chosen), np.int32))
    return Batch(forest, weight, tree)
