"""The loss on every labelled node."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax


def label_loss(logits: jax.Array, label: jax.Array, num_trees: int | jax.Array) -> jax.Array:
    """Softmax cross entropy summed over labelled nodes, divided by the number of trees.

    This is the minibatch objective of Socher et al. 2013 (equation 3 without its penalty) and
    Tai et al. 2015 (section 4.1): every phrase has a label, and a tree weighs by its phrases.
    Nodes without a label (``label < 0``, padding included) are left out by selection, so that
    whatever their logits hold has no part in the value or in the gradient.

    Args:
        logits: ``[nodes, classes]``.
        label: int ``[nodes]``, -1 where a node has none.
        num_trees: The batch size, positive.

    Returns:
        A scalar, in nats a tree.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxrec.models import label_loss
        >>> label_loss(jnp.zeros((3, 2)), jnp.array([0, 1, -1]), 1).round(4)
        Array(1.3863, dtype=float32)
    """
    labelled = label >= 0
    logits = jnp.where(labelled[:, None], logits, jnp.zeros_like(logits))
    entropy = optax.softmax_cross_entropy_with_integer_labels(logits, jnp.where(labelled, label, 0))
    return jnp.sum(jnp.where(labelled, entropy, jnp.zeros_like(entropy))) / num_trees
