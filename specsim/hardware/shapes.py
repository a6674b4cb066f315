"""The shape of a model: what one run multiplies, reads and stores, counted in weights.

Symbols: P weights, L tokens in the cache, n new tokens, w a sliding window.  A shape holds counts
only, so a shape is the same for any checkpoint of a model; in how many bits they are stored is its
``Precision``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property

from specsim.checks import InvalidArgumentError, UnsupportedError, integer, number

NUMBER_BYTES = {
    "float32": 4.0,
    "bfloat16": 2.0,
    "float16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "fp4": 0.5,
}
_DTYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True)
class Precision:
    """In what numbers a model is kept and multiplied.

    dtype : float32, bfloat16 or float16: embeddings, head and, by default, everything else
    weight_bits : bits per weight of the layers, scales and zero points included
    expert_bits : the same of the routed experts; as ``weight_bits`` by default
    kv_bits : bits per number in the KV cache
    kv_integers : whether those are integers, which attention widens to the 16-bit type
    state_bits : the same of a state of constant size; by default 32, as SGLang keeps it, while
        vLLM keeps it in 16 unless ``mamba_ssm_cache_dtype`` says otherwise
    compute : number type of the matrix products.  Quantised weights alone do not change it: they
        are widened on the way to the arithmetic, which then saves bytes and no FLOPs.
    """

    dtype: str = "bfloat16"
    weight_bits: float | None = None
    expert_bits: float | None = None
    kv_bits: float | None = None
    compute: str | None = None
    state_bits: float = 32.0
    kv_integers: bool = False

    def __post_init__(self) -> None:
        if self.dtype not in _DTYPES:
            raise UnsupportedError(f"dtype {self.dtype!r} is not known (known: {_list(_DTYPES)})")
        if self.compute is not None and self.compute not in NUMBER_BYTES:
            known = _list(NUMBER_BYTES)
            raise UnsupportedError(f"compute {self.compute!r} is not known (known: {known})")
        for name in ("weight_bits", "expert_bits", "kv_bits", "state_bits"):
            bits = getattr(self, name)
            if bits is not None and number(name, bits, low=0.0, high=64.0) == 0:
                raise InvalidArgumentError(f"{name} must be > 0, got 0")

    @property
    def dtype_bytes(self) -> float:
        """Bytes of one number of the embeddings and the head."""
        return NUMBER_BYTES[self.dtype]

    @property
    def weight_bytes(self) -> float:
        """Bytes of one weight of a layer."""
        return self.dtype_bytes if self.weight_bits is None else self.weight_bits / 8

    @property
    def expert_bytes(self) -> float:
        """Bytes of one weight of a routed expert."""
        return self.weight_bytes if self.expert_bits is None else self.expert_bits / 8

    @property
    def kv_bytes(self) -> float:
        """Bytes of one number in the KV cache."""
        return self.dtype_bytes if self.kv_bits is None else self.kv_bits / 8

    @property
    def state_bytes(self) -> float:
        """Bytes of one number in a state of constant size."""
        return self.state_bits / 8

    @property
    def multiplies_in(self) -> str:
        """Number type of the matrix products."""
        return self.dtype if self.compute is None else self.compute


@dataclass(frozen=True)
class Attention:
    """What one attention of a layer reads.

    kv_width : numbers stored per token: 2 kv_heads head_dim; with latent attention one latent and
        one rotary key, kv_lora_rank + qk_rope_head_dim (DeepSeek-V2, arXiv 2405.04434, table 1)
    pair_width : multiply-adds of one new token with one stored token: heads (key + value
        dimension), which is 2 heads head_dim.  With latent attention it is that of the form that
        engines decode with, queries and values in the latent space ("absorbed", the same paper,
        section 2.1.2): heads (2 kv_lora_rank + qk_rope_head_dim)
    expanded_width, expansion : of latent attention, the same where a run makes keys and values of
        its latents first, as engines read prompts, and what making those of one stored token takes;
        whichever form is less is counted.  None: there is no such form
    heads, kv_heads : of the queries, and of what is stored; a latent is one head, which every card
        of a tensor-parallel group keeps whole
    window : a token sees the last ``window`` ones, itself among them; None: all
    of_encoder : reads the encoder's states, which a run of the decoder never extends
    chunked : windows stand side by side, and a token sees its own one up to itself (Llama 4)
    selected : of all tokens, a token attends to so many that another attention of the layer has
        picked for it (DeepSeek-V3.2, arXiv 2512.02556, section 2.1); None: to all
    state : numbers of a state that has the same size at any context, where linear attention
        stores no tokens; a run reads it and writes it.  Engines that verify drafts write one for
        every new token, as they cannot know which will be the last accepted one
    state_width : multiply-adds of one new token with the state
    """

    kv_width: int
    pair_width: int
    heads: int = 1
    kv_heads: int = 1
    window: int | None = None
    of_encoder: bool = False
    chunked: bool = False
    selected: int | None = None
    state: int = 0
    state_width: int = 0
    expanded_width: int | None = None
    expansion: int = 0

    def products(self, context: int, new_tokens: int) -> int:
        """Multiply-adds of the new tokens of one sequence with what is stored."""
        seen = self.pairs(context, new_tokens)
        found = self.pair_width * seen
        if self.expanded_width is not None:
            found = min(found, self.expanded_width * seen + self.expansion * context)
        return found + self.state_width * new_tokens

    def pairs(self, context: int, new_tokens: int) -> int:
        """Pairs of a new token and a token it sees: sum_{i=1..n} min(L + i, w).

        In chunks it is sum_{i=1..n} ((L + i - 1) mod w + 1).
        """
        if self.of_encoder:
            return context * new_tokens
        if self.chunked and self.window is not None:
            return _pairs_in_chunks(context + new_tokens, self.window) - _pairs_in_chunks(
                context, self.window
            )
        most = self.window if self.selected is None else self.selected
        growing = new_tokens
        if most is not None:
            growing = min(max(most - context, 0), new_tokens)
        seen = growing * context + growing * (growing + 1) // 2
        return seen + (new_tokens - growing) * (most or 0)

    def read(self, context: int, new_tokens: int = 1) -> int:
        """Stored tokens that a run reads: what its first new token sees.

        Where tokens are picked, every new token reads its own ones: neighbours that pick the same
        are counted apart, so this counts too many rather than too few.
        """
        if self.selected is not None:
            return min(context, new_tokens * self.selected)
        if self.window is None:
            return context
        return context % self.window if self.chunked else min(context, self.window - 1)

    def stored(self, context: int) -> int:
        """Tokens that the cache must hold, of chunks as many as one is long."""
        return context if self.window is None else min(context, self.window)


def _pairs_in_chunks(tokens: int, size: int) -> int:
    """Pairs among the first ``tokens`` tokens, each of which sees its chunk up to itself."""
    full, rest = divmod(tokens, size)
    return full * (size * (size + 1) // 2) + rest * (rest + 1) // 2


@dataclass(frozen=True)
class Layer:
    """Weights of one layer that a run reads.

    weights : read by every run: attention, norms, router, shared experts or the dense block
    whole : those of them that every card of a tensor-parallel group keeps and multiplies whole, as
        vLLM does: a router, projections to a latent, what a head mixes states with; norms of
        layers, which are lost among the others, are not in it
    attentions : one, or two where a decoder also attends to an encoder, or where one picks the
        tokens that the other attends to
    experts, experts_per_token, expert_weights : routed experts, how many of them one token
        goes through, and the weights of one; all zero in a dense layer
    """

    weights: int
    attentions: tuple[Attention, ...]
    experts: int = 0
    experts_per_token: int = 0
    expert_weights: int = 0
    whole: int = 0

    def __post_init__(self) -> None:
        integer("experts per token", self.experts_per_token, high=self.experts)
        integer("whole", self.whole, high=self.weights)


@dataclass(frozen=True)
class Shape:
    """A model's layers, head, and the weights that a run of the decoder does not read.

    layers : one entry per layer of the decoder
    hidden : numbers of a token between layers, which cards that share a layer exchange
    head : output projection and last norm, read whole by every run; a table of embeddings that
        is tied to the output counts here
    whole_head : of the head's weights, those that every card of a tensor-parallel group keeps whole
    idle : kept in memory and not read, or a row per token: an untied table of embeddings, learned
        positions, an encoder
    vocabulary : tokens it tells apart; None: not known
    longest_context : tokens that it can read; None: not known
    mtp_modules : modules for multi-token prediction that its config.json names; 0: none
    name : what the model is called; None: not known
    """

    model_type: str
    layers: tuple[Layer, ...]
    hidden: int
    head: int
    idle: int
    precision: Precision = field(default_factory=Precision)
    vocabulary: int | None = None
    longest_context: int | None = None
    mtp_modules: int = 0
    name: str | None = None
    whole_head: int = 0

    @property
    def label(self) -> str:
        """Its name, or its type where that is not known."""
        return self.name or self.model_type

    @cached_property
    def distinct_layers(self) -> tuple[tuple[Layer, int], ...]:
        """Each kind of layer with how many there are of it."""
        return tuple(Counter(self.layers).items())

    @property
    def has_encoder(self) -> bool:
        return any(part.of_encoder for layer in self.layers for part in layer.attentions)

    @property
    def parameters(self) -> int:
        """All weights, a tied table once."""
        layers = sum(
            count * (layer.weights + layer.experts * layer.expert_weights)
            for layer, count in self.distinct_layers
        )
        return layers + self.head + self.idle

    @property
    def whole_parameters(self) -> int:
        """Of the layers' weights, those that every card of a tensor-parallel group keeps whole."""
        return sum(count * layer.whole for layer, count in self.distinct_layers)

    @property
    def active_parameters(self) -> int:
        """P_active: weights that one token is multiplied with.

        Published counts of active parameters often add the table of embeddings, of which a token
        reads one row.
        """
        layers = sum(
            count * (layer.weights + layer.experts_per_token * layer.expert_weights)
            for layer, count in self.distinct_layers
        )
        return layers + self.head

    def flops(
        self,
        new_tokens: int,
        context: int,
        encoder_context: int = 0,
        *,
        logits: int | None = None,
    ) -> float:
        """FLOPs of one sequence in one run.

        logits : of so many of the new tokens the head makes logits; None: of all, as a
            verification needs; a prefill or a draft needs those of the last token only

        2 P_active a token and 2 per pair and width: 2 P + 4 L d_attn per layer in plain attention
        (PaLM, arXiv 2204.02311, appendix B, a third of its training FLOPs); here the token sees
        itself too, and norms count as matrices do.
        """
        at_head = new_tokens if logits is None else integer("logits", logits, high=new_tokens)
        layers = (self.active_parameters - self.head) * new_tokens
        attention = self.attention_flops(new_tokens, context, encoder_context)
        return 2.0 * (layers + self.head * at_head) + attention

    def attention_flops(self, new_tokens: int, context: int, encoder_context: int = 0) -> float:
        """Of them those of new tokens with what is stored, which are of no weights."""
        products = 0
        for layer, count in self.distinct_layers:
            for part in layer.attentions:
                stored = encoder_context if part.of_encoder else context
                products += count * part.products(stored, new_tokens)
        return 2.0 * products

    def at(self, precision: Precision) -> Shape:
        """The same model kept in other numbers."""
        return replace(self, precision=precision)


def _list(names: Iterable[str]) -> str:
    return ", ".join(names)
