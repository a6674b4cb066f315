"""What torch finds on this machine: an accelerator, and how many threads suit a model."""

from __future__ import annotations

import torch

from calibrate.models.place import find_place
from specsim.api.models import Models

_GIB = 1 << 30


def accelerator() -> str | None:
    """The device that models run on unless another is named; None where that is the CPU."""
    device = find_place(None, None, None).device
    if device.type == "cpu":
        return None
    if device.type != "cuda":
        return device.type
    free, total = torch.cuda.mem_get_info(device)
    name = torch.cuda.get_device_name(device)
    return f"{name}, {free / _GIB:.0f} of {total / _GIB:.0f} GiB free"


def threads_for(target: str) -> int:
    """How many threads ``calibrate`` takes for this target; torch has as many as before, then.

    target : a model, by name or folder, or a shape, which gets random weights

    Raises ModelError where it cannot be loaded.
    """
    from calibrate.models.load import load_or_build  # loads transformers

    before = torch.get_num_threads()
    try:
        models = Models(target=target)
        device, dtype = models.place()
        model, _ = load_or_build(target, device, dtype)
        models.try_threads(model)
        return torch.get_num_threads()
    finally:
        torch.set_num_threads(before)
