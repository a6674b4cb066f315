"""Where models run: a device and a number type."""

from __future__ import annotations

from typing import NamedTuple

import torch

from specsim.checks import InvalidArgumentError
from specsim.profiles import Dtype

# Threads that torch takes by itself, the cores or what OMP_NUM_THREADS says: read when this module
# is loaded, before anybody sets them here.
MOST_THREADS = torch.get_num_threads()


class Place(NamedTuple):
    """A device and the number type of the weights on it."""

    device: torch.device
    dtype: torch.dtype


def find_place(device: str | None, dtype: Dtype | None, threads: int | None) -> Place:
    """The place of these names; sets the number of CPU threads if one is given.

    device : None is an accelerator if there is one
    dtype : None is float32 on a CPU and bfloat16 elsewhere
    """
    found = _device(device)
    if threads is not None:
        torch.set_num_threads(threads)
    name = dtype or ("float32" if found.type == "cpu" else "bfloat16")
    number_type: torch.dtype = getattr(torch, name)
    return Place(found, number_type)


def _device(name: str | None) -> torch.device:
    if name is None:
        accelerator = torch.accelerator.current_accelerator(check_available=True)
        return accelerator or torch.device("cpu")
    try:
        device = torch.device(name)
        # Memory can be had of devices that work nothing out, such as meta.
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError):
        raise InvalidArgumentError(f"device {name} is not to be had on this machine") from None
    return device
