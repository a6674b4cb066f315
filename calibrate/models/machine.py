"""The machine and the versions, as a profile describes them."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import torch
import transformers

from specsim import __version__, profiles


def hardware(device: torch.device) -> profiles.Hardware:
    """The machine as a profile describes it."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return profiles.Hardware(
        device=device.type,
        device_name=name,
        processor=_processor(),
        cores=os.cpu_count() or 1,
        threads=torch.get_num_threads(),
    )


def told_apart_by(machine: profiles.Hardware) -> list[str | int]:
    """What two machines differ by: every CPU has the device name "cpu", and threads are chosen."""
    return [machine.device_name, machine.processor, machine.cores]


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass  # not Linux
    return platform.processor() or platform.machine()


_DTYPES: dict[torch.dtype, profiles.Dtype] = {
    torch.float32: "float32",
    torch.bfloat16: "bfloat16",
    torch.float16: "float16",
}


def software(dtype: torch.dtype) -> profiles.Software:
    """The versions as a profile describes them."""
    return profiles.Software(
        specsim=__version__,
        python=platform.python_version(),
        torch=str(torch.__version__),
        transformers=str(transformers.__version__),
        dtype=_DTYPES[dtype],
    )
