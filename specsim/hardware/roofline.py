"""The time of a run: the longer of its arithmetic and its memory traffic, and what nothing hides.

    seconds = max(FLOPs / (peak eta_f), bytes / (bandwidth eta_b)) + layers t_layer + communication

(Williams09, doi 10.1145/1498765.1498785, for the maximum; t_layer is what a machine spends on
starting the work of a layer however little it is).  eta = 1 and t_layer = 0 give a bound: no
engine is faster on that accelerator.  Traffic counts the weights once, the KV cache read and the
KV cache written; activations, rows of the embeddings and the order of the parts inside a run are
left out, so arithmetic and traffic overlap perfectly.  Products with weights are taken at the
rate of their type, where they are quantised; those of the head at that of the 16-bit type, as those
of all layers where experts alone are quantised; those of attention, too, or at that of fp8 where
the cache is in 8 bits.

A model on several cards is judged by the busiest of them (``Parallelism``), and what the cards send
each other overlaps with nothing.  Of a tensor-parallel group every card reads and multiplies its
share of the weights, and all of those that engines keep whole (``Layer.whole``).  Some count as
divided though they are not: norms, projections to fewer key-value heads than cards, the arithmetic
of DeepSeek-V3.2's indexer, and shared experts where groups of several cards deal out the others.
Stages of a pipeline count as equally long.  A CUDA graph counts for the tokens it is asked for, not
for those it is padded to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from specsim.checks import InvalidArgumentError, UnsupportedError, integer, number
from specsim.hardware.accelerators import Accelerator
from specsim.hardware.interconnects import (
    Interconnect,
    all_gather_s,
    all_reduce_s,
    all_to_all_s,
    point_to_point_s,
)
from specsim.hardware.parallel import ONE_CARD, Parallelism
from specsim.hardware.routing import expected_experts, load_over_mean, most_touched
from specsim.hardware.shapes import Shape

# What a run waits for most.
Bound = Literal["compute", "memory", "launch", "communication"]


@dataclass(frozen=True)
class Efficiency:
    """How close an engine gets to the data sheet, from measured runs.

    compute, memory : eta_f and eta_b, shares of the peak rates in (0, 1]
    layer_s : t_layer, seconds per layer that no other work hides (kernel launches)
    graph_tokens : most tokens of a run that is recorded as a CUDA graph; None: every run is
    eager_layer_s : seconds a layer that the host needs to start its kernels in a run that is not;
        such a run takes at least that, or its own time where that is longer
    """

    compute: float = 1.0
    memory: float = 1.0
    layer_s: float = 0.0
    graph_tokens: int | None = None
    eager_layer_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("compute", "memory"):
            if number(f"{name} efficiency", getattr(self, name), low=0.0, high=1.0) == 0:
                raise InvalidArgumentError(f"{name} efficiency must be > 0, got 0")
        for name in ("layer_s", "eager_layer_s"):
            number(name, getattr(self, name), low=0.0)
        if self.graph_tokens is not None:
            integer("graph_tokens", self.graph_tokens)


PEAK = Efficiency()
# What engines reach where nobody has measured it, about what three public data sets give
# (``configs/fits.csv``, ``benchmarks/shipped_fits.py``): 0.67 to 0.75 of the bandwidth, 0.5 of the
# arithmetic in verifications of 256 tokens and more in long prompts.
USUAL = Efficiency(compute=0.6, memory=0.75)


# Tokens after which a scan over a prompt writes the state that it carries (the chunks of
# flash-linear-attention, which vLLM's gated delta net takes).
_STATE_CHUNK = 64


@dataclass(frozen=True)
class Roofline:
    """One run, taken apart.

    flops, bytes : arithmetic and memory traffic of the busiest card
    compute_s, memory_s : the time of each at the efficiency asked for
    launch_s : time of starting work that neither hides
    communication_s : what the cards send each other
    eager_s : what the host needs to start the kernels of a run that is no CUDA graph; else 0
    experts : routed experts that the run touches in a layer, in the mean over layers that have
        them; 0 where none has
    tokens : new tokens of the run in each group of cards, of all its sequences together
    """

    flops: float
    bytes: float
    compute_s: float
    memory_s: float
    launch_s: float
    communication_s: float = 0.0
    eager_s: float = 0.0
    experts: float = 0.0
    tokens: int = 0

    @property
    def seconds(self) -> float:
        return max(self.eager_s, self._work_s)

    @property
    def bound(self) -> Bound:
        """What takes most of the run."""
        if self.eager_s >= self._work_s:
            return "launch"
        parts: dict[Bound, float] = {
            "memory": self.memory_s,
            "compute": self.compute_s,
            "launch": self.launch_s,
            "communication": self.communication_s,
        }
        return max(parts, key=lambda name: parts[name])

    @property
    def _work_s(self) -> float:
        return max(self.compute_s, self.memory_s) + self.launch_s + self.communication_s


def roofline(
    shape: Shape,
    accelerator: Accelerator,
    new_tokens: int = 1,
    batch: int = 1,
    context: int = 0,
    *,
    encoder_context: int = 0,
    logits: int | None = None,
    efficiency: Efficiency = PEAK,
    parallel: Parallelism = ONE_CARD,
    interconnect: Interconnect | None = None,
    imbalance: float = 1.0,
    routing_exponent: float = 1.0,
) -> Roofline:
    """One run of ``shape`` over ``new_tokens`` tokens of each of ``batch`` sequences.

    context : tokens that each sequence has in the KV cache before the run
    encoder_context : tokens of each sequence's input, for a model with an encoder
    logits : new tokens of a sequence whose distribution is wanted; None: all
    interconnect : between cards; None: the accelerator's own
    imbalance : with experts dealt out to cards, what the busiest card has to do over what uniform
        routing gives it by chance (``specsim.hardware.routing``), >= 1
    routing_exponent : r in [0, 1]: n new tokens of one sequence choose as many experts as n^r
        independent ones; 1: each chooses for itself, 0: all choose alike

    With groups of ``data`` each has its share of the sequences; with stages of a pipeline the batch
    is cut into as many parts, which keep all stages busy, so a run takes as long as a part needs
    for all stages.  The precision is the shape's (``Shape.at``).  Raises UnsupportedError where the
    accelerator has no units for its number type, or too little memory.
    """
    new_tokens, batch = integer("new tokens", new_tokens, low=1), integer("batch", batch, low=1)
    context = integer("context", context)
    encoder_context = _encoder_context(shape, encoder_context)
    imbalance = number("imbalance", imbalance, low=1.0)
    exponent = number("routing_exponent", routing_exponent, low=0.0, high=1.0)
    of_group = -(-batch // parallel.data)
    needed = memory_needed_bytes(
        shape, of_group, context + new_tokens, encoder_context, parallel=parallel
    )
    if needed > accelerator.memory:
        raise UnsupportedError(
            f"{shape.label} with batch {batch} and context {context + new_tokens} needs "
            f"{needed / 2**30:.1f} GiB, {accelerator.name} has {accelerator.memory / 2**30:g} GiB"
        )
    parts = min(parallel.pipeline, of_group)
    sequences = -(-of_group // parts)
    tokens = sequences * new_tokens
    kept = new_tokens if logits is None else logits
    wanted = sequences * kept
    # Tokens that the experts of a card see: dealt-out ones those of all groups.
    read = tokens
    if parallel.expert > 1:
        read = min(sequences * parallel.data, batch) * new_tokens
    routed = 0.0  # multiply-adds in routed experts, and bytes of those that are touched
    loaded = 0.0  # the same multiply-adds, as many as if all cards had what the busiest one has
    expert_bytes = touched_sum = expert_layers = 0.0
    choosing = read / new_tokens * new_tokens**exponent
    for layer, count in shape.distinct_layers:
        if layer.experts:
            chosen = layer.experts, layer.experts_per_token
            touched = expected_experts(*chosen, choosing)
            products = count * read * layer.experts_per_token * layer.expert_weights
            busiest = touched
            if parallel.expert > 1:
                most = most_touched(layer.experts, touched, parallel.expert)
                busiest = min(most * parallel.expert * imbalance, layer.experts)
                over = load_over_mean(*chosen, choosing, parallel.expert)
                loaded += products * min(over * imbalance, parallel.expert)
            expert_bytes += count * busiest * layer.expert_weights * shape.precision.expert_bytes
            routed += products
            touched_sum += count * touched
            expert_layers += count
    dense = sequences * shape.flops(
        new_tokens, context, encoder_context, logits=logits
    ) - 2.0 * routed * (tokens / read)
    sharing = parallel.tensor if parallel.expert == 1 else parallel.stage_cards
    whole = 2.0 * (tokens * shape.whole_parameters + wanted * shape.whole_head)
    flops = _on_a_card(dense, whole, parallel) + 2.0 * (loaded or routed) / sharing
    traffic = (
        _on_a_card(_dense_bytes(shape), _whole_bytes(shape), parallel)
        + expert_bytes / sharing
        + sequences * _cache_traffic(shape, new_tokens, context, encoder_context, kept, parallel)
    )
    eager = efficiency.graph_tokens is not None and tokens > efficiency.graph_tokens
    attention = sequences * shape.attention_flops(new_tokens, context, encoder_context)
    of_card = _Products(
        experts=2.0 * (loaded or routed) / sharing,
        attention=attention / parallel.tensor,
        head=2.0 * wanted * _on_a_card(shape.head, shape.whole_head, parallel),
        all=flops,
    )
    layers = len(shape.layers)
    link = interconnect or accelerator.interconnect
    return Roofline(
        flops=flops,
        bytes=traffic,
        compute_s=of_card.seconds(shape, accelerator) / efficiency.compute,
        memory_s=traffic / (accelerator.bandwidth * efficiency.memory),
        launch_s=layers * efficiency.layer_s,
        communication_s=_communication_s(shape, parallel, link, tokens, wanted),
        eager_s=layers * efficiency.eager_layer_s if eager else 0.0,
        experts=touched_sum / expert_layers if expert_layers else 0.0,
        tokens=tokens,
    )


def memory_needed_bytes(
    shape: Shape,
    batch: int = 1,
    context: int = 0,
    encoder_context: int = 0,
    *,
    parallel: Parallelism = ONE_CARD,
    states: int = 1,
) -> float:
    """Bytes on one card: its weights, and a KV cache with ``context`` tokens in each of its
    ``batch`` sequences.

    states : of constant size that a sequence keeps of each; engines that verify K drafts keep
        K + 1 (vLLM's ``num_speculative_blocks``)

    A card of a tensor-parallel group has its share of the heads, and one at least of those that are
    stored, so a latent, which counts as one, is on every card whole.  The fullest stage of a
    pipeline has its share of the layers, rounded up, and the larger of embeddings and head.
    """
    batch, context = integer("batch", batch, low=1), integer("context", context)
    encoder_context = _encoder_context(shape, encoder_context)
    precision = shape.precision
    dense = experts = cache = 0.0
    for layer, count in shape.distinct_layers:
        dense += count * layer.weights * precision.weight_bytes
        experts += count * layer.experts * layer.expert_weights * precision.expert_bytes
        for part in layer.attentions:
            stored = encoder_context if part.of_encoder else part.stored(context)
            held = part.kv_width * stored * precision.kv_bytes
            held += states * part.state * precision.state_bytes
            cache += count * held / min(parallel.tensor, part.kv_heads)
    sharing = parallel.tensor if parallel.expert == 1 else parallel.stage_cards
    stages = parallel.pipeline
    head = _on_a_card(shape.head, shape.whole_head, parallel)
    idle = shape.idle / parallel.tensor
    tables = head + idle if stages == 1 else max(head, idle)
    share = -(-len(shape.layers) // stages) / len(shape.layers) if shape.layers else 1.0
    whole = shape.whole_parameters * precision.weight_bytes
    layers = _on_a_card(dense, whole, parallel) + experts / sharing + batch * cache
    return share * layers + tables * precision.dtype_bytes


def _on_a_card(all_of_it: float, whole: float, parallel: Parallelism) -> float:
    """Of a tensor-parallel group, which divides all but what every card has ``whole``."""
    return (all_of_it - whole) / parallel.tensor + whole


@dataclass(frozen=True)
class _Products:
    """FLOPs of a card by what is multiplied: those of layers are the rest of ``all``."""

    experts: float
    attention: float
    head: float
    all: float

    def seconds(self, shape: Shape, accelerator: Accelerator) -> float:
        """At the peaks.  What a quantisation leaves out is multiplied in the numbers that it is
        kept in: the head always, and all layers where routed experts alone are quantised.
        """
        precision = shape.precision
        quantised = accelerator.peak(precision.multiplies_in)
        kept = accelerator.peak_flops.get(precision.dtype, quantised)
        experts_only = precision.weight_bits is None and precision.expert_bits is not None
        layers = self.all - self.experts - self.attention - self.head
        return (
            self.experts / quantised
            + layers / (kept if experts_only else quantised)
            + self.head / kept
            + self.attention / _attention_peak(shape, accelerator)
        )


def _attention_peak(shape: Shape, accelerator: Accelerator) -> float:
    """FLOP/s of queries with keys, and of what they weigh the values by: weights may be quantised
    and these are not, unless the cache is in fp8 (vLLM 0.32.0, model_executor/layers/attention).
    """
    precision = shape.precision
    quantised = accelerator.peak(precision.multiplies_in)
    kept = accelerator.peak_flops.get(precision.dtype, quantised)
    in_fp8 = precision.kv_bits == 8 and not precision.kv_integers
    return accelerator.peak_flops.get("fp8", kept) if in_fp8 else kept


def _dense_bytes(shape: Shape) -> float:
    """Bytes of the weights that every run reads."""
    precision = shape.precision
    layers = sum(count * layer.weights for layer, count in shape.distinct_layers)
    return shape.head * precision.dtype_bytes + layers * precision.weight_bytes


def _whole_bytes(shape: Shape) -> float:
    """Of them those of weights that every card of a tensor-parallel group has whole."""
    precision = shape.precision
    layers = shape.whole_parameters * precision.weight_bytes
    return shape.whole_head * precision.dtype_bytes + layers


def _cache_traffic(
    shape: Shape,
    new_tokens: int,
    context: int,
    encoder_context: int,
    kept: int,
    parallel: Parallelism,
) -> float:
    """Bytes of the KV cache and of constant states that one sequence reads and writes on a card.

    A state is read once.  It is written for each of the ``kept`` tokens whose distribution is
    wanted, as nobody knows yet which is the last one that is accepted, and for every chunk of the
    others.
    """
    precision, moved_bytes = shape.precision, 0.0
    written = kept + -(-(new_tokens - kept) // _STATE_CHUNK)
    for layer, count in shape.distinct_layers:
        for part in layer.attentions:
            moved = encoder_context
            if not part.of_encoder:
                moved = part.read(context, new_tokens) + new_tokens
            numbers = part.kv_width * moved * precision.kv_bytes
            numbers += (1 + written) * part.state * precision.state_bytes
            moved_bytes += count * numbers / min(parallel.tensor, part.kv_heads)
    return moved_bytes


def _communication_s(
    shape: Shape,
    parallel: Parallelism,
    link: Interconnect | None,
    tokens: int,
    logits: int,
) -> float:
    """What the cards of one run send each other, over ``tokens`` tokens of a group.

    A tensor-parallel group sums rows of its share of the embeddings, its states after the attention
    and after what follows it, and gathers the logits; experts that are dealt out over groups get
    the states of their tokens and give them back, and the group gathers them; stages hand the
    states on.  A token's state goes to a card once, however many of its experts are there.
    """
    if parallel.tensor * parallel.pipeline * parallel.expert == 1:
        return 0.0  # groups of cards that share nothing
    if link is None:
        raise UnsupportedError(
            f"interconnect is missing: {parallel.cards} cards send each other something; name one"
        )
    states = tokens * shape.hidden * shape.precision.dtype_bytes
    over_groups = parallel.expert > 1 and parallel.data > 1
    reduced = all_reduce_s(link, parallel.tensor, states)
    seconds = reduced if shape.layers else 0.0
    for layer, count in shape.distinct_layers:
        seconds += count * reduced
        if layer.experts and over_groups:
            # Cards that have experts of a token, which are as good as drawn one by one.
            reached = parallel.expert * (
                1.0 - (1.0 - 1.0 / parallel.expert) ** layer.experts_per_token
            )
            sent = states * reached / parallel.tensor
            seconds += 2 * count * all_to_all_s(link, parallel.expert, sent)
            seconds += count * all_gather_s(link, parallel.tensor, states)
        else:
            seconds += count * reduced
    if shape.vocabulary:
        gathered = logits * shape.vocabulary * shape.precision.dtype_bytes
        seconds += all_gather_s(link, parallel.tensor, gathered)
    return seconds + (parallel.pipeline - 1) * point_to_point_s(link, states)


def _encoder_context(shape: Shape, encoder_context: int) -> int:
    if encoder_context and not shape.has_encoder:
        raise InvalidArgumentError(
            f"encoder_context must be 0 for {shape.label}, which has no encoder, "
            f"got {encoder_context}"
        )
    return integer("encoder_context", encoder_context)
