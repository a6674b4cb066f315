"""The models that a decoder drafts with: those of one request, and where they come from."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from calibrate.decode.drafters import (
    CachedHead,
    Drafter,
    PairCounts,
    first_layers,
    read_pair_counts,
)
from calibrate.decode.encoder_decoder import cached_model, is_encoder_decoder
from calibrate.decode.engine import CachedModel
from calibrate.models.eagle import EagleModel
from calibrate.models.embedded import EMBEDDED, FAMILY, HEADS, MEMBERS
from calibrate.models.load import (
    ModelError,
    Pair,
    check_kind,
    load,
    load_head_of,
    tokenizer_difference,
)
from specsim.checks import InvalidArgumentError
from specsim.schemes import BeamSearch, Scheme

# Other models that settings may draft with.
ROLES = ("middle", "masks", "aligned", *HEADS)


@dataclass(frozen=True)
class ModelSet:
    """Models of one request, each with a cache of its own.

    models : what drafts, by name
    counts : pair counts for drafters without a model
    mask : token id of a mask, of the model that fills in masks
    heads : heads over the target's hidden states, by name
    shared : drafters that several parts of a drafter have in common, by name
    """

    target: CachedModel
    models: Mapping[str, CachedModel]
    counts: PairCounts | None = None
    mask: int | None = None
    heads: Mapping[str, CachedHead] = field(default_factory=dict)
    shared: dict[str, Drafter] = field(default_factory=dict)

    def __getitem__(self, name: str) -> CachedModel:
        if name not in self.models:
            known = ", ".join(self.models)
            raise InvalidArgumentError(f"no model is called {name!r}, there are {known}")
        return self.models[name]

    def pair_counts(self, drafter: str) -> PairCounts:
        """The counts, for the drafter of this name."""
        if self.counts is None:
            raise InvalidArgumentError(f"{drafter} needs pair counts")
        return self.counts

    def mask_token(self, drafter: str) -> int:
        """The token id of a mask, for the drafter of this name."""
        if self.mask is None:
            raise InvalidArgumentError(f"{drafter} needs the token id of a mask")
        return self.mask

    def head(self, drafter: str) -> CachedHead:
        """The head over the target's hidden states, for the drafter of this name."""
        if drafter not in self.heads:
            raise InvalidArgumentError(f"{drafter} needs a head over the target's hidden states")
        return self.heads[drafter]


@dataclass(frozen=True)
class ModelPool:
    """Where model sets come from: loaded models by name, beside the target.

    vocabulary : tokens that all models share
    digests : SHA-256 of the weights that a profile does not have, by role
    """

    target: Any
    models: Mapping[str, Any]
    vocabulary: int
    counts: PairCounts | None = None
    mask: int | None = None
    digests: Mapping[str, str] = field(default_factory=dict)
    heads: Mapping[str, EagleModel] = field(default_factory=dict)

    def new(self, timed: bool = True) -> ModelSet:
        """The models with fresh caches."""
        cached = {
            name: cached_model(model, self.vocabulary, timed, name)
            for name, model in self.models.items()
        }
        target = cached_model(self.target, self.vocabulary, timed, "target")
        heads = {name: CachedHead(head, target, timed, name) for name, head in self.heads.items()}
        return ModelSet(target, cached, self.counts, self.mask, heads)

    def why_not(self, scheme: Scheme) -> str | None:
        """Why none of these models can decode by the scheme; None where they can."""
        if isinstance(scheme, BeamSearch) and is_encoder_decoder(self.target):
            return "an encoder-decoder model cannot be told the positions of a tree"
        return None

    @property
    def names(self) -> set[str]:
        """What schemes may draft with."""
        known = {*self.models, *self.heads}
        if self.counts:
            known |= {"bigram", "unigram", "max-gram"}
        return known | {"copy"}


def load_pool(pair: Pair, others: Mapping[str, str], trust_remote_code: bool = False) -> ModelPool:
    """Target and draft of the pair, a causal target's first third, and other models by role.

    others : role to model name; the embedded family has a member of its own for every role
    """
    parameter = next(pair.target.model.parameters())
    embedded = pair.target.description.name.startswith(EMBEDDED)
    own = {role: EMBEDDED + role for role in ROLES if embedded and role in (*MEMBERS, *HEADS)}
    names = {**own, **others}
    target = pair.target.model
    models = {"draft": pair.draft.model}
    if not pair.target.reads_source:
        layers = target.config.get_text_config().num_hidden_layers
        # Not of models whose tables have a part for every layer, or whose weights stay packed.
        with suppress(RuntimeError, KeyError):
            models["early"] = first_layers(target, ceil(layers / 3))
    digests, heads = {}, {}
    for role, name in names.items():
        if role in HEADS:
            heads[role], digests[role] = load_head_of(pair.target, name)
            continue
        loaded = load(name, parameter.device, parameter.dtype, trust_remote_code)
        check_kind(pair.target, loaded, role)
        difference = tokenizer_difference(pair.target.tokenizer, loaded.tokenizer)
        if difference is not None:
            raise ModelError(f"{role} {name} has another tokenizer than the target ({difference})")
        models[role] = loaded.model
        digests[role] = loaded.description.sha256
    return ModelPool(
        target,
        models,
        min(_vocabulary(model) for model in (target, *models.values())),
        read_pair_counts(FAMILY / "bigram.safetensors") if embedded else None,
        _mask(models["masks"]) if "masks" in models else None,
        digests,
        heads,
    )


def _vocabulary(model: Any) -> int:
    size: int = model.config.get_text_config().vocab_size
    return size


def _mask(model: Any) -> int:
    """Where a mask drafter's config keeps the token id of a mask."""
    mask: int | None = getattr(model.config, "mask_token_id", None)
    if mask is None:
        raise ModelError("the masks model must have mask_token_id in its config.json")
    return mask
