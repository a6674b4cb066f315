"""From logits to the distribution that tokens are drawn from: temperature, top-k, top-p.

Order and ties are those of transformers' logits processors: temperature first; then top-k, where
every token that ties with the k-th stays; then top-p, the fewest most probable tokens that reach
p, where of equally probable tokens the later ones stay.  Arrays of NumPy and of PyTorch, in at
least 32 bits; logits may be -inf, as long as each row has a finite one.
"""

from __future__ import annotations

from array_api_compat import array_namespace

from specsim.checks import InvalidArgumentError, integer, number, probability
from specsim.rules.base import Array, kth_largest, one_hot_top

# Below this, logits over temperature leave the range of float32.
_COLDEST = 1e-30


def probabilities(
    logits: Array, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None
) -> Array:
    """Distributions for logits, both of shape (..., V).

    temperature : 0 is one-hot at the first largest logit, and the filters change nothing then
    top_k : >= 1
    top_p : in [0, 1]; at 0 only the most probable token stays
    """
    xp = array_namespace(logits)
    temperature = number("temperature", temperature, low=0.0)
    if 0 < temperature < _COLDEST:
        raise InvalidArgumentError(f"temperature must be 0 or >= {_COLDEST:g}, got {temperature:g}")
    top_k = integer("top_k", top_k, low=1) if top_k is not None else None
    top_p = probability("top_p", top_p) if top_p is not None else None
    if logits.dtype.itemsize < 4:
        logits = xp.astype(logits, xp.float32)
    if temperature == 0:
        return one_hot_top(logits)
    scaled = logits / temperature
    if top_k is not None and top_k < logits.shape[-1]:
        scaled = _keep_top_k(scaled, top_k)
    if top_p is not None and top_p < 1:
        scaled = _keep_top_p(scaled, top_p)
    return softmax(scaled)


def softmax(logits: Array) -> Array:
    """exp of the logits over its sum, along the last axis."""
    xp = array_namespace(logits)
    weights = xp.exp(logits - xp.max(logits, axis=-1, keepdims=True))
    return weights / xp.sum(weights, axis=-1, keepdims=True)


def _keep_top_k(logits: Array, top_k: int) -> Array:
    xp = array_namespace(logits)
    least = kth_largest(logits, top_k)[..., None]
    return xp.where(logits < least, -float("inf"), logits)


def _keep_top_p(logits: Array, top_p: float) -> Array:
    xp = array_namespace(logits)
    order = xp.argsort(logits, axis=-1, stable=True)
    ascending = xp.take_along_axis(logits, order, axis=-1)
    reached = xp.cumulative_sum(softmax(ascending), axis=-1)
    dropped = reached <= 1 - top_p
    dropped[..., -1] = False
    back = xp.argsort(order, axis=-1)
    return xp.where(xp.take_along_axis(dropped, back, axis=-1), -float("inf"), logits)
