"""The optimizers that the command line names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import optax

from jaxrec.train._settings import OPTIMIZERS


def _adagrad(rate: float) -> optax.GradientTransformation:
    """Adagrad as Duchi et al. 2011 write it: accumulators start at zero.

    optax starts them at 0.1, which for gradients of a tree model (often below 0.01) would be
    plain SGD at three times the rate for the whole of a run.
    """
    return optax.adagrad(rate, initial_accumulator_value=0.0, eps=1e-12)


_BY_NAME: Final[Mapping[str, Callable[[float], optax.GradientTransformation]]] = MappingProxyType(
    dict(zip(OPTIMIZERS, (_adagrad, optax.adam, optax.sgd, optax.rmsprop), strict=True))
)


def make_optimizer(name: str, rate: float, l2: float = 0.0) -> optax.GradientTransformation:
    """An optimizer by name, with the gradient of ``l2 / 2 * |weights|**2`` added where asked.

    Args:
        name: One of ``adagrad``, ``adam``, ``sgd`` and ``rmsprop``.
        rate: The learning rate.
        l2: The strength of L2, per minibatch as in Tai et al. 2015, section 5.3.
    """
    optimizer = _BY_NAME[name](rate)
    return optax.chain(optax.add_decayed_weights(l2), optimizer) if l2 else optimizer
