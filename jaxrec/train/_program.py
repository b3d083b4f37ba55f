"""The model of a run and its compiled programs: one training step, one evaluation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple, cast

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from jaxrec.data import Forest
from jaxrec.models import RNTN, TreeClassifier, TreeLSTM, TreeRNN, label_loss
from jaxrec.optim import RowOptimizer, gather_rows
from jaxrec.train._batching import TrainBatch
from jaxrec.train._evaluate import Counts, count
from jaxrec.train._optimizers import make_optimizer
from jaxrec.train._settings import MODELS, Settings
from jaxrec.train._task import Task

_MODELS: Final[Mapping[str, type[TreeClassifier]]] = MappingProxyType(
    dict(zip(MODELS, (TreeLSTM, TreeRNN, RNTN), strict=True))
)


class TrainState(NamedTuple):
    """All arrays that training changes; a pytree.

    Attributes:
        weights: The parameters but for the word table.
        table: The word table, updated by the rows that a batch uses.
        weights_optimizer: State of the optimizer of ``weights``.
        table_optimizer: State of the optimizer of ``table``.
        step: int32 scalar, steps taken.
        loss_sum: float32 scalar, the losses of this epoch's steps so far.
    """

    weights: nnx.State
    table: nnx.State
    weights_optimizer: optax.OptState
    table_optimizer: optax.OptState
    step: jax.Array
    loss_sum: jax.Array


Step = Callable[[TrainState, TrainBatch], tuple[TrainState, jax.Array]]
Score = Callable[[nnx.State, nnx.State, Forest], Counts]


@dataclass(frozen=True)
class Program:
    """A model's first state and its programs.

    Attributes:
        state: The state before the first step.
        step: ``(state, batch) -> (state, loss)``; the state passed in is used up.
        score: ``(weights, table, forest) -> counts``.
    """

    state: TrainState
    step: Step
    score: Score


class _Split(NamedTuple):
    """A model taken apart; `nnx.merge` puts it together from any weights and table."""

    graph: nnx.GraphDef[Any]
    table: nnx.State
    weights: nnx.State
    rest: nnx.State

    def model(self, weights: nnx.State, table: nnx.State) -> TreeClassifier:
        return nnx.merge(self.graph, table, weights, self.rest)


class _Optimizers(NamedTuple):
    weights: optax.GradientTransformation
    table: RowOptimizer


def make_program(settings: Settings, task: Task) -> Program:
    """Builds the model and the programs that the settings describe."""
    split = _split(_model(settings, task))
    optimizers = _Optimizers(
        make_optimizer(settings.optimizer, settings.lr, settings.l2),
        RowOptimizer(make_optimizer(settings.embed_optimizer, settings.embed_lr)),
    )
    return Program(
        state=_first_state(split, optimizers),
        step=_compiled(_make_step(split, optimizers, settings.seed), settings.executor, (0,)),
        score=_compiled(_make_score(split), settings.executor),
    )


def _compiled(fun: Callable[..., Any], executor: str, donate: tuple[int, ...] = ()) -> Any:
    """A function as one compiled program, or as it is for an executor that runs eagerly.

    Args:
        fun: A pure function of pytrees.
        executor: Only ``"graph"`` runs inside a compiled program.
        donate: Positions of the arguments whose buffers the result may take over.
    """
    return jax.jit(fun, donate_argnums=donate) if executor == "graph" else fun


def _model(settings: Settings, task: Task) -> TreeClassifier:
    model = _MODELS[settings.model](
        len(task.vocabulary),
        settings.embed,
        settings.hidden,
        task.num_classes,
        rngs=nnx.Rngs(settings.seed),
        dropout=settings.dropout,
    )
    if task.embedding is not None:
        model.embed.embedding[...] = jnp.asarray(task.embedding)
    return model


def _split(model: TreeClassifier) -> _Split:
    graph, table, weights, rest = nnx.split(model, nnx.PathContains("embed"), nnx.Param, ...)
    return _Split(graph, table, weights, rest)


def _first_state(split: _Split, optimizers: _Optimizers) -> TrainState:
    return TrainState(
        weights=split.weights,
        table=split.table,
        weights_optimizer=optimizers.weights.init(split.weights),
        table_optimizer=optimizers.table.init(split.table),
        step=jnp.zeros((), jnp.int32),
        loss_sum=jnp.zeros((), jnp.float32),
    )


def _make_step(split: _Split, optimizers: _Optimizers, seed: int) -> Step:
    """One step; the table's gradient is that of the used rows, never of the whole table."""

    def loss(weights: nnx.State, rows: nnx.State, batch: TrainBatch, key: jax.Array) -> jax.Array:
        logits = split.model(weights, rows)(batch.forest, rngs=key)
        return label_loss(logits, jnp.asarray(batch.forest.label), jnp.sum(batch.weight))

    def step(state: TrainState, batch: TrainBatch) -> tuple[TrainState, jax.Array]:
        key = jax.random.fold_in(jax.random.key(seed), state.step)
        small = gather_rows(state.table, batch.rows)
        value, (gradient, small_gradient) = jax.value_and_grad(loss, (0, 1))(
            state.weights, small, batch, key
        )
        updates, weights_optimizer = optimizers.weights.update(
            gradient, state.weights_optimizer, state.weights
        )
        table, table_optimizer = optimizers.table.update(
            state.table, state.table_optimizer, small_gradient, batch.rows
        )
        # optax names its result by what a leaf may be; it is shaped like its argument.
        weights = cast(nnx.State, optax.apply_updates(state.weights, updates))
        new = TrainState(
            weights,
            table,
            weights_optimizer,
            table_optimizer,
            step=state.step + 1,
            loss_sum=state.loss_sum + value,
        )
        return new, value

    return step


def _make_score(split: _Split) -> Score:
    def score(weights: nnx.State, table: nnx.State, forest: Forest) -> Counts:
        model = split.model(weights, table)
        model.eval()
        return count(model(forest), forest)

    return score
