"""The time of a run: the longer of its arithmetic and its memory traffic.

    seconds = max(FLOPs / (peak eta_f), bytes / (bandwidth eta_b)) + layers t_layer

(Williams09, doi 10.1145/1498765.1498785, for the maximum; the last term is what a machine spends
on starting the work of a layer however little it is).  eta = 1 and t_layer = 0 give a bound: no
engine is faster on that accelerator.  Traffic counts the weights once, the KV cache read and the
KV cache written; activations, rows of the embeddings and the order of the parts inside a run are
left out, so arithmetic and traffic overlap perfectly, and all products are taken at one rate.  One
accelerator; no model is split.
"""

from __future__ import annotations

from dataclasses import dataclass

from specsim.checks import InvalidArgumentError, UnsupportedError, integer, number
from specsim.hardware.accelerators import Accelerator
from specsim.hardware.shapes import Shape


@dataclass(frozen=True)
class Efficiency:
    """How close an engine gets to the data sheet, from measured runs.

    compute, memory : eta_f and eta_b, shares of the peak rates in (0, 1]
    layer_s : t_layer, seconds per layer that no other work hides (kernel launches)
    """

    compute: float = 1.0
    memory: float = 1.0
    layer_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("compute", "memory"):
            if number(f"{name} efficiency", getattr(self, name), low=0.0, high=1.0) == 0:
                raise InvalidArgumentError(f"{name} efficiency must be > 0, got 0")
        number("layer_s", self.layer_s, low=0.0)


PEAK = Efficiency()


@dataclass(frozen=True)
class Roofline:
    """One run, taken apart.

    flops, bytes : its arithmetic and its memory traffic
    compute_s, memory_s : the time of each at the efficiency asked for
    launch_s : time that neither hides
    """

    flops: float
    bytes: float
    compute_s: float
    memory_s: float
    launch_s: float

    @property
    def seconds(self) -> float:
        return max(self.compute_s, self.memory_s) + self.launch_s


def expected_experts(experts: int, experts_per_token: int, tokens: int) -> float:
    """Expected number of experts that a run touches: E (1 - (1 - k / E)^m), m = B n tokens.

    Exact if every token picks its k of E experts uniformly and independently of the others, as
    k / E is then each token's chance of touching a given one.  Real routing is uneven and
    neighbouring tokens choose alike; both touch fewer (1 - (1 - x)^m is concave in x), so this
    counts too much traffic rather than too little.
    """
    experts = integer("experts", experts, low=1)
    share = integer("experts per token", experts_per_token, high=experts) / experts
    return experts * (1.0 - (1.0 - share) ** integer("tokens", tokens))


def roofline(
    shape: Shape,
    accelerator: Accelerator,
    new_tokens: int = 1,
    batch: int = 1,
    context: int = 0,
    *,
    encoder_context: int = 0,
    efficiency: Efficiency = PEAK,
) -> Roofline:
    """One run of ``shape`` over ``new_tokens`` tokens of each of ``batch`` sequences.

    context : tokens that each sequence has in the KV cache before the run
    encoder_context : tokens of each sequence's input, for a model with an encoder

    The precision is the shape's (``Shape.at``).  Raises UnsupportedError where the accelerator
    has no units for its number type, or too little memory.
    """
    new_tokens, batch = integer("new tokens", new_tokens, low=1), integer("batch", batch, low=1)
    context = integer("context", context)
    encoder_context = _encoder_context(shape, encoder_context)
    needed = memory_needed_bytes(shape, batch, context + new_tokens, encoder_context)
    if needed > accelerator.memory:
        raise UnsupportedError(
            f"{shape.model_type} with batch {batch} and context {context + new_tokens} needs "
            f"{needed / 1e9:.1f} GB, {accelerator.name} has {accelerator.memory / 1e9:g} GB"
        )
    flops = batch * shape.flops(new_tokens, context, encoder_context)
    traffic = _weights_read(shape, batch * new_tokens) + batch * _cache_traffic(
        shape, new_tokens, context, encoder_context
    )
    peak = accelerator.peak(shape.precision.multiplies_in)
    return Roofline(
        flops=flops,
        bytes=traffic,
        compute_s=flops / (peak * efficiency.compute),
        memory_s=traffic / (accelerator.bandwidth * efficiency.memory),
        launch_s=len(shape.layers) * efficiency.layer_s,
    )


def memory_needed_bytes(
    shape: Shape, batch: int = 1, context: int = 0, encoder_context: int = 0
) -> float:
    """Bytes of the weights and of a KV cache with ``context`` tokens in each of its sequences."""
    batch, context = integer("batch", batch, low=1), integer("context", context)
    encoder_context = _encoder_context(shape, encoder_context)
    precision = shape.precision
    layers = cache = 0.0
    for layer, count in shape.distinct_layers:
        experts = layer.experts * layer.expert_weights * precision.expert_bytes
        layers += count * (layer.weights * precision.weight_bytes + experts)
        for part in layer.attentions:
            stored = encoder_context if part.of_encoder else part.stored(context)
            cache += count * part.kv_width * stored * precision.kv_bytes
            cache += count * part.state * precision.state_bytes
    embeddings = (shape.head + shape.idle) * precision.dtype_bytes
    return layers + embeddings + batch * cache


def _weights_read(shape: Shape, tokens: int) -> float:
    """Bytes of the weights that ``tokens`` tokens touch, each read once."""
    precision = shape.precision
    total = shape.head * precision.dtype_bytes
    for layer, count in shape.distinct_layers:
        total += count * layer.weights * precision.weight_bytes
        if layer.experts:
            touched = expected_experts(layer.experts, layer.experts_per_token, tokens)
            total += count * touched * layer.expert_weights * precision.expert_bytes
    return total


def _cache_traffic(shape: Shape, new_tokens: int, context: int, encoder_context: int) -> float:
    """Bytes of the KV cache and of constant states that one sequence reads and writes."""
    tokens = states = 0
    for layer, count in shape.distinct_layers:
        for part in layer.attentions:
            if part.of_encoder:
                moved = encoder_context
            else:
                moved = part.read(context, new_tokens) + new_tokens
            tokens += count * part.kv_width * moved
            states += 2 * count * part.state
    return tokens * shape.precision.kv_bytes + states * shape.precision.state_bytes


def _encoder_context(shape: Shape, encoder_context: int) -> int:
    if encoder_context and not shape.has_encoder:
        raise InvalidArgumentError(
            f"encoder_context must be 0 for {shape.model_type}, which has no encoder, "
            f"got {encoder_context}"
        )
    return integer("encoder_context", encoder_context)
