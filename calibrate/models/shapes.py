"""Models with random weights: a run costs what it costs with trained ones."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from calibrate.models.config_fields import known_fields
from specsim.checks import SpecsimError, UnsupportedError, reason_of
from specsim.hardware import known_model_types, shape_from_config
from specsim.hardware.fields import layer_count, text_part


class ShapeError(SpecsimError):
    """A config.json that no model can be built from; the message says why."""


def random_model(config: Mapping[str, Any], device: torch.device, dtype: torch.dtype) -> Any:
    """The model that a config.json describes, ready to run.

    Weights are drawn on the device itself, so that the host needs no room for them.  Only fields
    that the model's class in transformers has are taken (``calibrate.models.config_fields``).
    """
    known = known_fields(config)
    _check_room(config, device, dtype)
    try:
        described = AutoConfig.for_model(**known)
        with torch.device(device):
            model = AutoModelForCausalLM.from_config(described, dtype=dtype)
    # transformers raises whatever a field that cannot be leads it to, which all means the same.
    except Exception as error:
        raise ShapeError(
            f"no model can be built from this config.json: {reason_of(error)}"
        ) from None
    return model.eval().requires_grad_(False)


def _check_room(config: Mapping[str, Any], device: torch.device, dtype: torch.dtype) -> None:
    """Refuse a model that the memory of the device cannot hold, as far as its size is known."""
    layer_count(text_part(config), "num_hidden_layers", "n_layer", default=1)
    if config["model_type"] not in known_model_types():
        return
    try:
        needed = shape_from_config(config).parameters * dtype.itemsize
    except UnsupportedError:  # numbers of a format that is not counted
        return
    room = _memory_bytes(device)
    if room is not None and needed > room:
        raise ShapeError(
            f"the model of this config.json needs {needed / 2**30:,.1f} GiB, the memory of "
            f"{device} has {room / 2**30:,.1f} GiB; take a smaller shape, or --dtype with fewer "
            "bytes"
        )


def _memory_bytes(device: torch.device) -> int | None:
    """All memory of a device; None where nobody tells."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[1])
    if device.type == "cpu" and hasattr(os, "sysconf"):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return None
