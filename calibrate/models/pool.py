"""The models that settings draft with: a profile's pair, and what else is at hand."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any

from calibrate.decode.drafters import first_layers, read_pair_counts
from calibrate.models.load import (
    EMBEDDED,
    FAMILY,
    MEMBERS,
    ModelError,
    Pair,
    load,
    tokenizer_difference,
)
from calibrate.schemes.base import ModelPool
from specsim.commands._scheme_check import ROLES


def load_pool(pair: Pair, others: Mapping[str, str], trust_remote_code: bool = False) -> ModelPool:
    """Target and draft of the pair, the target's first third, and other models by role.

    others : role to model name; the embedded family has a member of its own for every role
    """
    parameter = next(pair.target.model.parameters())
    embedded = pair.target.description.name.startswith(EMBEDDED)
    own = {role: EMBEDDED + role for role in ROLES if embedded and role in MEMBERS}
    names = {**own, **others}
    target = pair.target.model
    layers = target.config.get_text_config().num_hidden_layers
    models = {"draft": pair.draft.model, "early": first_layers(target, ceil(layers / 3))}
    digests = {}
    for role, name in names.items():
        loaded = load(name, parameter.device, parameter.dtype, trust_remote_code)
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
