"""Row-sparse updates: train the rows of a large table that a batch uses, and only those.

A batch of 25 sentences uses some 300 of the 18,000 word vectors. Differentiating with respect to
the whole table makes a gradient that is almost everywhere zero, and an optimizer then reads and
writes all of the table and of its own state. Here the used rows are gathered first, the loss is
differentiated with respect to this small table, any elementwise optax transformation updates it
together with the same rows of its state, and both go back in place:

    rows, local = used_rows(tokens, num_rows=len(table), capacity=512)        # host, NumPy
    small = gather_rows(table, rows)
    gradient = jax.grad(loss)(small, local)                                   # local indexes small
    table, state = RowOptimizer(optax.adagrad(0.1)).update(table, state, gradient, rows)

Inside one `jit` that donates table and state, both scatters write into the donated buffers, as
long as the jitted function returns them in the order in which it takes them: JAX pairs donated
buffers with results of their shape in that order, and crossed pairs cost copies of everything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import optax

from jaxrec.data._arguments import check_integers

PyTree = Any
Rows = jax.Array | npt.NDArray[np.int32]


class UsedRows(NamedTuple):
    """The rows of a table that a batch uses.

    Attributes:
        rows: int32 ``[capacity]``: the used rows, ascending and distinct; after them distinct
            numbers from ``num_rows`` on, which are out of range: they gather zeros and are
            dropped by scatters.
        local: int32, shaped like the indices: each one renumbered to its place in ``rows``.
            Negative indices (nothing there) become -1.
    """

    rows: npt.NDArray[np.int32]
    local: npt.NDArray[np.int32]


def used_rows(indices: npt.ArrayLike, num_rows: int, capacity: int | None = None) -> UsedRows:
    """Finds the distinct rows that ``indices`` name, and renumbers the indices to them.

    Runs on the host in NumPy: it is part of making a batch, not of the compiled step.

    Args:
        indices: Integers of any shape, below ``num_rows``; negative for none.
        num_rows: Rows of the table.
        capacity: Length of the result's ``rows``; by default what is needed. A fixed capacity
            (the number of indices always suffices) lets all batches share one compiled step.

    Returns:
        The rows and the renumbered indices.

    Raises:
        ValueError: An index is not below ``num_rows``, ``capacity`` is too small, or there are more
            rows than int32 can number.
        TypeError: The indices, or a size, are no integers.

    Example:
        >>> from jaxrec.optim import used_rows
        >>> used = used_rows([7, 2, -1, 7], num_rows=10, capacity=3)
        >>> used.rows.tolist(), used.local.tolist()
        ([2, 7, 10], [1, 0, -1, 1])
    """
    check_integers("used_rows", num_rows=num_rows, capacity=capacity)
    index = np.asarray(indices)
    if index.size and not np.issubdtype(index.dtype, np.integer):
        raise TypeError(f"used_rows: got indices of {index.dtype}, expected integers")
    present = index >= 0
    rows, inverse = np.unique(index[present], return_inverse=True)
    if rows.size and rows[-1] >= num_rows:
        raise ValueError(f"used_rows: got index {rows[-1]}, expected one below num_rows={num_rows}")
    capacity = rows.size if capacity is None else capacity
    if num_rows + capacity > np.iinfo(np.int32).max:
        raise ValueError(
            f"used_rows: got num_rows={num_rows}, capacity={capacity}, expected less than 2**31 "
            "together: rows are numbered in int32"
        )
    if rows.size > capacity:
        raise ValueError(
            f"used_rows: got capacity={capacity}, expected {rows.size} or more: so many distinct "
            "rows the indices use"
        )
    local = np.full(index.shape, -1, np.int32)
    local[present] = inverse
    padding = num_rows + np.arange(capacity - rows.size)
    return UsedRows(np.concatenate([rows, padding]).astype(np.int32), local)


def gather_rows(table: PyTree, rows: Rows) -> PyTree:
    """The given rows of every array of ``table``; rows out of range give zeros.

    Args:
        table: A pytree of arrays that share their first axis.
        rows: int32 ``[capacity]`` as `used_rows` makes them: ascending and distinct.

    Returns:
        The same pytree with first axes of size ``capacity``.
    """
    return jax.tree.map(
        lambda leaf: (
            jnp.asarray(leaf)
            .at[rows]
            .get(mode="fill", fill_value=0, unique_indices=True, indices_are_sorted=True)
        ),
        table,
    )


def scatter_rows(table: PyTree, rows: Rows, small: PyTree) -> PyTree:
    """``table`` with its ``rows`` replaced by ``small``, the inverse of `gather_rows`.

    Rows out of range are dropped. Under `jit` with ``table`` donated this writes in place.
    """
    return jax.tree.map(
        lambda leaf, new: (
            jnp.asarray(leaf)
            .at[rows]
            .set(new, mode="drop", unique_indices=True, indices_are_sorted=True)
        ),
        table,
        small,
    )


@dataclass(frozen=True)
class RowOptimizer:
    """An elementwise optax transformation, applied to the used rows of a table.

    For a transformation that changes nothing where the gradient is zero (SGD, Adagrad) the
    result is exactly that of the dense update. For others it is their *lazy* form: what depends
    on an unused row's gradient being zero waits until the row is used again. Adam's moments of
    a row decay only in steps that use it (its step count is shared), and weight decay (L2)
    shrinks a row only in steps that use it.

    Transformations that mix rows (clipping by the global norm) see the used rows alone.

    Attributes:
        transform: The optax transformation, learning rate included.

    Example:
        >>> import jax.numpy as jnp, optax
        >>> from jaxrec.optim import RowOptimizer, used_rows
        >>> optimizer, table = RowOptimizer(optax.sgd(1.0)), jnp.zeros((4, 1))
        >>> rows = used_rows([2], num_rows=4).rows
        >>> optimizer.update(table, optimizer.init(table), jnp.ones((1, 1)), rows)[0].tolist()
        [[0.0], [0.0], [-1.0], [0.0]]
    """

    transform: optax.GradientTransformation

    def init(self, table: PyTree) -> optax.OptState:
        """The optimizer state of the whole table, as ``transform.init`` makes it."""
        return self.transform.init(table)

    def update(
        self, table: PyTree, state: optax.OptState, gradient: PyTree, rows: Rows
    ) -> tuple[PyTree, optax.OptState]:
        """One step on ``rows`` of the table and of the state.

        Args:
            table: A pytree of arrays ``[num_rows, ...]``.
            state: The state of the whole table.
            gradient: The gradient with respect to ``gather_rows(table, rows)``.
            rows: int32 ``[capacity]`` from `used_rows`.

        Returns:
            The new table and the new state.
        """
        small = gather_rows(table, rows)
        small_state = self._map_rows(lambda leaf: gather_rows(leaf, rows), state)
        updates, small_state = self.transform.update(gradient, small_state, small)
        # The gathered parts of the new state go back into the old; the rest (counts) is new.
        whole_state = self._map_rows(
            lambda new, old: scatter_rows(old, rows, new), small_state, state
        )
        return scatter_rows(table, rows, optax.apply_updates(small, updates)), whole_state

    def _map_rows(
        self, fun: Callable[..., PyTree], state: optax.OptState, *rest: optax.OptState
    ) -> optax.OptState:
        """Maps ``fun`` over the leaves of the state that have a row for each row of the table."""
        marks = optax.tree.map_params(
            self.transform, lambda _: True, state, transform_non_params=lambda _: False
        )
        return jax.tree.map(
            lambda mark, leaf, *others: fun(leaf, *others) if mark else leaf, marks, state, *rest
        )
