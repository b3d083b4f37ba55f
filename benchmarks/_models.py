"""The three models of the benchmarks: sizes, and one set of float32 parameters for every peer.

The equations, for a word's embedding x, children l and r, and `cat` for concatenation:

- `treelstm` (Tai et al. 2015, eqs 9-14, binary): leaf [i,o,u] = x W_leaf + b_leaf,
  c = sig(i) tanh(u), h = sig(o) tanh(c); node [i,fl,fr,o,u] = cat(hl,hr) U + b,
  c = sig(i) tanh(u) + sig(fl) cl + sig(fr) cr, h = sig(o) tanh(c).
- `treernn` (Socher et al. 2011): leaf h = x; node h = tanh(cat(hl,hr) W + b).
- `rntn` (Socher et al. 2013): leaf h = x; node v = cat(hl,hr),
  h_k = tanh(sum_ij v_i T_ijk v_j + v W_k + b_k).

Every node has logits h Ws + bs; the loss is the cross entropy summed over the nodes of a batch and
divided by the number of its trees.
"""

from typing import NamedTuple

import numpy as np

CLASSES = 5
LEARNING_RATE = 0.05
EPSILON = 1e-10

Params = dict[str, np.ndarray]


class Sizes(NamedTuple):
    """Width of the word vectors and of the hidden state."""

    embedding: int
    hidden: int


SIZES = {
    "treelstm": Sizes(300, 150),
    "treernn": Sizes(100, 100),
    "rntn": Sizes(25, 25),
}


def sizes_of(model: str, hidden: int | None) -> Sizes:
    """The widths of a model; of another hidden state, which in some is a word's vector too."""
    sizes = SIZES[model]
    if hidden is None:
        return sizes
    return Sizes(hidden if sizes.embedding == sizes.hidden else sizes.embedding, hidden)


def init_params(model: str, words: int, sizes: Sizes | None = None, seed: int = 0) -> Params:
    """Draws the parameters of `model` uniformly, scaled by the number of inputs of each.

    Args:
        model: a key of `SIZES`.
        words: rows of the embedding table.
        sizes: other widths than the model's own, for checks.
        seed: of the generator.
    """
    rng = np.random.default_rng(seed)

    def draw(*shape: int, inputs: int) -> np.ndarray:
        bound = inputs**-0.5
        return rng.uniform(-bound, bound, shape).astype(np.float32)

    e, h = sizes or SIZES[model]
    shapes = {
        "treelstm": {"W_leaf": (e, 3 * h), "b_leaf": (3 * h,), "U": (2 * h, 5 * h), "b": (5 * h,)},
        "treernn": {"W": (2 * h, h), "b": (h,)},
        "rntn": {"T": (2 * h, 2 * h, h), "W": (2 * h, h), "b": (h,)},
    }[model]
    shapes |= {"Ws": (h, CLASSES), "bs": (CLASSES,)}
    inputs = {"W_leaf": e, "b_leaf": e, "T": 4 * h * h, "Ws": h, "bs": h}
    params = {name: draw(*s, inputs=inputs.get(name, 2 * h)) for name, s in shapes.items()}
    return {"embed": draw(words, e, inputs=4)} | params
