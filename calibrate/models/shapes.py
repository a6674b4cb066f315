"""Models with random weights: a run costs what it costs with trained ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from specsim.checks import SpecsimError


class ShapeError(SpecsimError):
    """A config.json that no model can be built from; the message says why."""


def random_model(config: Mapping[str, Any], device: torch.device, dtype: torch.dtype) -> Any:
    """The model that a config.json describes, ready to run.

    Weights are drawn on the device itself, so that the host needs no room for them.
    """
    try:
        known = AutoConfig.for_model(**config)
        with torch.device(device):
            model = AutoModelForCausalLM.from_config(known, dtype=dtype)
    except (ValueError, KeyError, TypeError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ShapeError(f"no model can be built from this config.json: {reason}") from None
    return model.eval().requires_grad_(False)
