"""Where drafts come from, by the names that engines have for it.

A round of K draft tokens costs, with runs, width and verified positions from this table,

    round = first run + (runs - 1) later runs + target run over the verified positions + host time

    drafter        runs   positions of the first run   of a later run   verified
    draft_model    K      K + 2                        1                K + 1
    eagle, eagle3  K      K + 1, or ``slots``          topk             K + 1, or ``slots``
    mtp            K      K + 1                        1                K + 1
    medusa         1      1                            -                K + 1
    parallel       1      K + 1, 2K + 1 of PARD,       -                K + 1
                          2K of P-EAGLE
    ngram, suffix  0      -                            -                1 + drafted

The first run reads all positions that were verified, rejected ones too, since engines pad them
(vLLM 0.33.0, ``vllm/v1/spec_decode/llm_base_proposer.py``), and a draft model, which takes no state
of the target for the token behind them, that one besides (in SGLang it does not); logits are taken
where tokens are drafted only.  ``eagle`` with topk above 1 verifies a tree of ``slots`` nodes, of
depth K.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import ClassVar, Literal, get_args

import numpy as np

from specsim.acceptance import AlphaLike
from specsim.checks import (
    Floats,
    InvalidArgumentError,
    check_choice,
    integer,
    number,
    probability,
)
from specsim.deployment.head_configs import head_config, is_head
from specsim.hardware.fields import optional_count
from specsim.hardware.shapes import Shape

# Drafters that run once, by their names: P-EAGLE (arXiv 2602.01469), PARD (2504.18583) and DFlash
# (2602.06036).
Kind = Literal["p_eagle", "pard", "dflash"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, kw_only=True)
class _Drafter:
    """What all have.

    alpha : acceptance of its drafts; None: the one that is asked about (``optimize(alpha)``)
    """

    method: ClassVar[str]

    alpha: AlphaLike | None = None

    @property
    def longest(self) -> int | None:
        """The longest draft that it can make; None: any."""
        return None

    def runs(self, gamma: int) -> int:
        """Runs of a round with ``gamma`` drafts."""
        return gamma

    def first_positions(self, gamma: int) -> int:
        """Positions of a request that the first run reads; ``gamma`` 0 is a round that only keeps
        the drafter's cache in step.
        """
        return gamma + 1

    @property
    def width(self) -> int:
        """Positions of a request that a later run reads, and at which tokens are drafted."""
        return 1

    def verified(self, gamma: int) -> int:
        """Positions of a request that the target reads in a round with ``gamma`` drafts."""
        return gamma + 1

    @property
    def label(self) -> str:
        """Its name with what was said of it."""
        said = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name != "alpha" and getattr(self, field.name) != field.default
        }
        if not said:
            return self.method
        words = (
            value if name == "model" and isinstance(value, str) else f"{name}={_word(value)}"
            for name, value in said.items()
        )
        return f"{self.method}:{','.join(words)}"


@dataclass(frozen=True, kw_only=True)
class DraftModel(_Drafter):
    """A smaller language model of its own.

    model : a shipped shape, a config.json, a folder with one, or a Shape
    tensor : cards that share it; None: those of the target
    eager_us : microseconds that the host needs for each layer of a run, where the engine has no
        CUDA graphs for it, as vLLM 0.32.0's V2 model runner
        (``vllm/v1/worker/gpu/spec_decode/standalone_ar/speculator.py``); None: graphs as the
        target's
    """

    method: ClassVar[str] = "draft_model"

    model: str | Path | Shape
    tensor: int | None = None
    eager_us: float | None = None

    def __post_init__(self) -> None:
        _degree(self.tensor)
        if self.eager_us is not None:
            number("eager_us", self.eager_us, low=0.0)

    def first_positions(self, gamma: int) -> int:
        return gamma + 2


@dataclass(frozen=True, kw_only=True)
class _Head(_Drafter):
    """Layers over the target's states, as wide as they are.

    model : the head as published: the target that a shipped one is for (``eagle3:llama-3.1-8b``),
        a config.json, a folder, or a name on the Hugging Face Hub that is in the local cache;
        None: layers like the target's attention with a dense block
    layers : of the head, where no model is given
    tensor : cards that share it; None: those of the target
    """

    model: str | Path | None = None
    layers: int = 1
    tensor: int | None = None

    def __post_init__(self) -> None:
        if integer("layers", self.layers, low=1) != 1 and self.model is not None:
            raise InvalidArgumentError(
                f"layers must be left out where a model is given, whose config says how many, "
                f"got {self.layers}"
            )
        _degree(self.tensor)


@dataclass(frozen=True, kw_only=True)
class Eagle(_Head):
    """EAGLE (arXiv 2401.15077): one layer over the target's last state and the drafted token.

    topk : tokens that each run drafts a node from; 1 is a chain
    slots : nodes of the tree that are verified, the token before it included, as far as there are
        so many: K runs make 1 + topk + (K - 1) topk^2 (EAGLE-2, arXiv 2406.16858); None: K + 1.
        A path of K drafts must fit, so K is below it
    """

    method: ClassVar[str] = "eagle"

    topk: int = 1
    slots: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("topk", self.topk, low=1)
        if self.slots is not None:
            integer("slots", self.slots, low=2)
        elif self.topk > 1:
            raise InvalidArgumentError(
                "slots is missing: with topk above 1, how many nodes of the tree are verified"
            )

    @property
    def longest(self) -> int | None:
        return None if self.slots is None else self.slots - 1  # as deep as a tree of them can be

    @property
    def width(self) -> int:
        return self.topk

    def first_positions(self, gamma: int) -> int:
        # Of a tree all nodes, rejected ones, too (SGLang 0.5.23, speculative/eagle_worker_v2.py).
        return self.verified(gamma)

    def verified(self, gamma: int) -> int:
        if self.slots is None or not gamma:
            return gamma + 1
        return min(self.slots, 1 + self.topk + (gamma - 1) * self.topk**2)


@dataclass(frozen=True, kw_only=True)
class Eagle3(Eagle):
    """EAGLE-3 (arXiv 2503.01840): states of three layers, and a vocabulary of its own.

    draft_vocab : tokens that it can draft; 32,000 in most published heads; None: all of the target
    """

    method: ClassVar[str] = "eagle3"

    draft_vocab: int | None = 32_000

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.model is not None and self.draft_vocab != type(self).draft_vocab:
            raise InvalidArgumentError(
                "draft_vocab must be left out where a model is given, whose config says how many, "
                f"got {self.draft_vocab}"
            )
        if self.draft_vocab is not None:
            integer("draft_vocab", self.draft_vocab, low=1)


@dataclass(frozen=True, kw_only=True)
class Mtp(_Drafter):
    """The target's own modules for multi-token prediction (DeepSeek-V3, arXiv 2412.19437, 2.2):
    one layer like the target's last, over its state and the drafted token.

    modules : that were trained; further drafts run the last one again
    """

    method: ClassVar[str] = "mtp"

    modules: int = 1

    def __post_init__(self) -> None:
        integer("modules", self.modules, low=1)


@dataclass(frozen=True, kw_only=True)
class Medusa(_Drafter):
    """Medusa (arXiv 2401.10774): one head a draft position, all in one run over the last state.

    heads : that were trained, and the longest draft; each has a vocabulary of its own to read
    """

    method: ClassVar[str] = "medusa"

    heads: int = 4

    def __post_init__(self) -> None:
        integer("heads", self.heads, low=1)

    @property
    def longest(self) -> int:
        return self.heads

    def runs(self, gamma: int) -> int:
        return min(gamma, 1)

    def first_positions(self, gamma: int) -> int:
        return min(gamma, 1)  # its heads have no cache to keep in step


@dataclass(frozen=True, kw_only=True)
class Parallel(_Head):
    """All drafts in one run: P-EAGLE and DFlash (layers over the target's states), PARD (a draft
    model).

    model : as in ``Eagle``, or the shape of a draft model
    draft_vocab : tokens that it can draft; None: all of the target
    kind : which of them, as engines must be told.  PARD and P-EAGLE read masked positions for their
        drafts behind those that were verified (vLLM 0.32.0, vllm/config/speculative.py,
        max_num_new_slots_for_drafting), and P-EAGLE's layers are EAGLE-3's
    """

    method: ClassVar[str] = "parallel"

    draft_vocab: int | None = None
    kind: Kind | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kind is not None:
            check_choice("kind", self.kind, KINDS)
        if self.draft_vocab is not None:
            integer("draft_vocab", self.draft_vocab, low=1)

    @property
    def longest(self) -> int | None:
        """A head that drafts in blocks knows the first token of one (DFlash, section 3)."""
        config = {} if self.model is None else head_config(self.method, str(self.model))
        block = optional_count(config, "block_size") if is_head(config) else None
        return block - 1 if block else None

    def runs(self, gamma: int) -> int:
        return min(gamma, 1)

    def first_positions(self, gamma: int) -> int:
        masked = {"pard": gamma, "p_eagle": max(gamma - 1, 0)}
        return gamma + 1 + masked.get(self.kind or "", 0)


@dataclass(frozen=True, kw_only=True)
class Ngram(_Drafter):
    """What followed the last tokens when they occurred before (prompt lookup).

    match : chance that a round of a request has a draft; the rates of acceptance are of such
    host_us : microseconds of host time that a look-up takes, for each request
    """

    method: ClassVar[str] = "ngram"

    match: float = 1.0
    host_us: float = 0.0

    def __post_init__(self) -> None:
        probability("match", self.match)
        number("host_us", self.host_us, low=0.0)

    def runs(self, gamma: int) -> int:
        return 0

    def first_positions(self, gamma: int) -> int:
        return 0

    def lengths(self, gamma: int) -> Floats:
        """P(a draft has j tokens or more) at j = 1..gamma, shape (gamma,)."""
        return np.ones(gamma)


@dataclass(frozen=True, kw_only=True)
class Suffix(Ngram):
    """What followed the longest suffix that occurred before (arXiv 2411.04975).

    length : tokens of a draft in the mean, where nothing cuts it; lengths are taken as geometric,
        cut at K; None: always K
    """

    method: ClassVar[str] = "suffix"

    length: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.length is not None:
            number("length", self.length, low=1.0)

    def lengths(self, gamma: int) -> Floats:
        if self.length is None:
            return np.ones(gamma)
        longer: Floats = np.power(1.0 - 1.0 / self.length, np.arange(gamma, dtype=float))
        return longer


Drafter = DraftModel | Eagle | Eagle3 | Mtp | Medusa | Parallel | Ngram | Suffix

DRAFTERS: Mapping[str, type[Drafter]] = {
    kind.method: kind for kind in (DraftModel, Eagle, Eagle3, Mtp, Medusa, Parallel, Ngram, Suffix)
}


def _word(value: object) -> str:
    if isinstance(value, Shape):
        return value.label
    return f"{value:g}" if isinstance(value, float) else f"{value}"


def _degree(tensor: int | None) -> None:
    if tensor is not None:
        integer("tensor", tensor, low=1)
