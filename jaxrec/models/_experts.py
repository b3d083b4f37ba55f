"""A hierarchical mixture of experts with hard routing."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

import jaxrec as jr
from jaxrec.models._classifier import check_sizes


class ExpertWeights(NamedTuple):
    """What `route` reads, for a tree of gates of D levels with K branches and inputs of size E.

    Attributes:
        gates: ``[(K**D - 1) / (K - 1), E, K]``, the gates in breadth-first order.
        gate_biases: ``[gates, K]``.
        inner: ``K**D`` kernels ``[E, H]``, an expert's first layer.
        inner_biases: ``K**D`` vectors ``[H]``.
        outer: ``K**D`` kernels ``[H, O]``, its second layer.
        outer_biases: ``K**D`` vectors ``[O]``.
    """

    gates: jax.Array
    gate_biases: jax.Array
    inner: tuple[jax.Array, ...]
    inner_biases: tuple[jax.Array, ...]
    outer: tuple[jax.Array, ...]
    outer_biases: tuple[jax.Array, ...]


class Routed(NamedTuple):
    """The result of `route`.

    Attributes:
        output: ``[O]``, the chosen expert's output times the probability of the choices.
        expert: int32, which expert was chosen.
    """

    output: jax.Array
    expert: jax.Array


@jr.rec_fn
def route(weights: ExpertWeights, x: jax.Array, gate: jax.Array, chance: jax.Array) -> Routed:
    """The output of the mixture below ``gate`` for the input ``x [E]``.

    A gate scores its K branches and follows the best one only (Jordan & Jacobs 1994 weigh all of
    them). ``chance`` is the probability of the branches taken so far and multiplies the output:
    through it the gates learn, although no gradient flows through the choice itself (Fedus et al.
    2022, equation 2). Inputs that reach the same expert, in whatever lane, are one matrix product.
    """
    gates, _, branches = weights.gates.shape

    def expert(k: int) -> Routed:
        hidden = jax.nn.relu(x @ weights.inner[k] + weights.inner_biases[k])
        output = hidden @ weights.outer[k] + weights.outer_biases[k]
        return Routed(chance * output, jnp.int32(k))

    def leaf() -> Routed:
        experts = [functools.partial(expert, k) for k in range(len(weights.inner))]
        return jr.switch(gate - gates, experts)

    def node() -> Routed:
        chances = jax.nn.softmax(x @ weights.gates[gate] + weights.gate_biases[gate])
        best = jnp.argmax(chances).astype(jnp.int32)
        return route(weights, x, branches * gate + 1 + best, chance * jnp.max(chances))

    return jr.cond(gate >= gates, leaf, node)


class HierarchicalExperts(nnx.Module):
    """A tree of gates whose leaves are experts; one expert runs for each input.

    The hierarchical mixture of Jordan & Jacobs (1994) with the hard choice of sparse mixtures
    (Shazeer et al. 2017; Fedus et al. 2022): with K branches and D levels, an input costs D gates
    and one of the K**D experts. Which one is decided by the values, so this is a recursion of
    computed structure.

    Args:
        input_dim: Size E of an input.
        hidden_dim: Size H of the hidden layer of an expert.
        output_dim: Size O of an output.
        branches: Branches K of a gate, at least 2.
        depth: Levels D of gates, at least 1.
        rngs: Stream ``params``.

    Example:
        >>> import jax.numpy as jnp
        >>> from flax import nnx
        >>> from jaxrec import models
        >>> model = models.HierarchicalExperts(3, 8, 2, branches=2, depth=2, rngs=nnx.Rngs(0))
        >>> routed = model(jnp.ones((5, 3)))
        >>> routed.output.shape, routed.expert.shape
        ((5, 2), (5,))
    """

    def __init__(
        self,
        input_dim: int,
        hidden_dim: int,
        output_dim: int,
        *,
        branches: int = 2,
        depth: int = 2,
        rngs: nnx.Rngs,
    ) -> None:
        sizes = {"input_dim": input_dim, "hidden_dim": hidden_dim, "output_dim": output_dim}
        check_sizes("HierarchicalExperts", **sizes, depth=depth)
        check_sizes("HierarchicalExperts", least=2, branches=branches)
        self.depth, experts = depth, branches**depth
        self.num_gates = (experts - 1) // (branches - 1)
        init = nnx.initializers.lecun_normal(batch_axis=0)
        shape = (self.num_gates, input_dim, branches)
        # Gates decide at once, not only once they have grown: their scores start at size 1.
        self.gates = nnx.Param(init(rngs.params(), shape, jnp.float32) * input_dim**0.5)
        self.gate_biases = nnx.Param(jnp.zeros((self.num_gates, branches), jnp.float32))
        inner = [nnx.Linear(input_dim, hidden_dim, rngs=rngs) for _ in range(experts)]
        outer = [nnx.Linear(hidden_dim, output_dim, rngs=rngs) for _ in range(experts)]
        self.inner, self.outer = nnx.List(inner), nnx.List(outer)

    def weights(self) -> ExpertWeights:
        """The parameters that the recursion reads, as plain arrays."""
        return ExpertWeights(
            self.gates[...],
            self.gate_biases[...],
            *_layers(self.inner),
            *_layers(self.outer),
        )

    def __call__(self, x: jax.Array, *, max_calls: int | None = None) -> Routed:
        """Routes every input.

        Args:
            x: ``[batch, E]``.
            max_calls: A bound on the calls, ``batch * (D + 1)`` if not given. Under an outer
                ``jax.vmap`` it bounds those of all examples together, so it has to be given there.

        Returns:
            The outputs ``[batch, O]`` and the chosen experts ``[batch]``.

        Raises:
            ValueError: `x` is of another shape.
        """
        x, size = jnp.asarray(x), self.gates.shape[1]
        if x.ndim != 2 or x.shape[1] != size:
            raise ValueError(
                f"HierarchicalExperts: got x of shape {x.shape}, expected [batch, {size}]"
            )
        calls = max(x.shape[0], 1) * (self.depth + 1) if max_calls is None else max_calls
        mixture, weights = route.with_options(max_calls=calls), self.weights()
        root, certain = jnp.int32(0), jnp.ones((), jnp.result_type(x, weights.gates))
        return jax.vmap(mixture, (None, 0, None, None))(weights, x, root, certain)


def _layers(layers: nnx.List) -> tuple[tuple[jax.Array, ...], tuple[jax.Array, ...]]:
    """The kernels and the biases of linear layers."""
    return tuple(f.kernel[...] for f in layers), tuple(f.bias[...] for f in layers)
