"""Accelerators by their vendors' data sheets: peak arithmetic, memory bandwidth, memory.

Every rate is for dense matrices.  NVIDIA prints rates "with sparsity" for many cards, twice what
a dense matrix gets; here they are halved.  GeForce cards accumulate float16 products in float32
at half the rate of accumulation in float16; the float32 one is here, as inference uses it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from specsim.checks import InvalidArgumentError, UnsupportedError, did_you_mean, number


@dataclass(frozen=True)
class Accelerator:
    """One accelerator.

    name : as in the table
    peak_flops : dense FLOP/s (integer operations for int8) by number type of the matrix products
    bandwidth : bytes/s of the device memory
    memory : bytes of the device memory
    source : the data sheet
    """

    name: str
    peak_flops: Mapping[str, float]
    bandwidth: float
    memory: float
    source: str

    def __post_init__(self) -> None:
        if not self.peak_flops:
            raise InvalidArgumentError(f"peak_flops of {self.name} must name a number type")
        rates = {f"peak_flops of {key}": value for key, value in self.peak_flops.items()}
        for name, value in {**rates, "bandwidth": self.bandwidth, "memory": self.memory}.items():
            if number(f"{name} of {self.name}", value, low=0.0) == 0:
                raise InvalidArgumentError(f"{name} of {self.name} must be > 0, got 0")

    def peak(self, number_type: str) -> float:
        """FLOP/s of matrix products in ``number_type``; refuses what the card has no units for."""
        if number_type not in self.peak_flops:
            raise UnsupportedError(
                f"{self.name} has no peak rate for {number_type} "
                f"(known: {', '.join(sorted(self.peak_flops))})"
            )
        return self.peak_flops[number_type]


_NVIDIA = "https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center"
_P100 = "https://images.nvidia.com/content/tesla/pdf/nvidia-tesla-p100-PCIe-datasheet.pdf"
_V100 = (
    "https://images.nvidia.com/content/technologies/volta/pdf/"
    "volta-v100-datasheet-update-us-1165301-r5.pdf"
)
_T4 = f"{_NVIDIA}/tesla-t4/t4-tensor-core-product-brief.pdf"
_A10 = f"{_NVIDIA}/a10/pdf/a10-datasheet.pdf"
_A100_40 = f"{_NVIDIA}/a100/pdf/nvidia-a100-datasheet.pdf"
_A100 = f"{_NVIDIA}/a100/pdf/nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf"
_GA102 = (
    "https://www.nvidia.com/content/PDF/nvidia-ampere-ga-102-gpu-architecture-whitepaper-v2.pdf"
)
_ADA = "https://images.nvidia.com/aem-dam/Solutions/geforce/ada/nvidia-ada-gpu-architecture.pdf"
_L4 = "https://www.nvidia.com/en-us/data-center/l4/"
_L40S = "https://www.nvidia.com/en-us/data-center/l40s/"
_H100 = "https://resources.nvidia.com/en-us-tensor-core/nvidia-tensor-core-gpu-datasheet"
_H200 = "https://www.nvidia.com/en-us/data-center/h200/"
_B200 = "https://www.nvidia.com/en-us/data-center/hgx/"
_MI300X = (
    "https://www.amd.com/content/dam/amd/en/documents/instinct-tech-docs/data-sheets/"
    "amd-instinct-mi300x-data-sheet.pdf"
)
_TPU = "https://cloud.google.com/tpu/docs"


def _row(
    name: str, memory_gb: float, bandwidth_gb_s: float, source: str, tera: Mapping[str, float]
) -> Accelerator:
    """A row in the units of data sheets: GB, GB/s and TFLOP/s."""
    return Accelerator(
        name=name,
        peak_flops={number_type: rate * 1e12 for number_type, rate in tera.items()},
        bandwidth=bandwidth_gb_s * 1e9,
        memory=memory_gb * 1e9,
        source=source,
    )


def _both(rate: float) -> dict[str, float]:
    return {"float16": rate, "bfloat16": rate}


_AMPERE = {**_both(312), "float32": 19.5, "int8": 624}
_HOPPER = {**_both(989.4), "float32": 67, "fp8": 1978.9, "int8": 1978.9}

_ROWS = (
    # Pascal has no tensor units: float16 runs on the same units as float32, two at a time.
    _row("P100-PCIe-16GB", 16, 732, _P100, {"float16": 18.7, "float32": 9.3}),
    # Volta and Turing have tensor units for float16 and none for bfloat16.
    _row("V100-PCIe-16GB", 16, 900, _V100, {"float16": 112, "float32": 14}),
    _row("V100-SXM2-16GB", 16, 900, _V100, {"float16": 125, "float32": 15.7}),
    _row("V100-SXM2-32GB", 32, 900, _V100, {"float16": 125, "float32": 15.7}),
    _row("T4", 16, 320, _T4, {"float16": 65, "float32": 8.1, "int8": 130}),
    _row("A10", 24, 600, _A10, {**_both(125), "float32": 31.2, "int8": 250}),
    _row("A100-40GB-PCIe", 40, 1555, _A100_40, _AMPERE),
    _row("A100-40GB-SXM", 40, 1555, _A100_40, _AMPERE),
    _row("A100-80GB-PCIe", 80, 1935, _A100, _AMPERE),
    _row("A100-80GB-SXM", 80, 2039, _A100, _AMPERE),
    _row("RTX-3090", 24, 936, _GA102, {**_both(71), "float32": 35.6, "int8": 284}),
    _row(
        "RTX-4090", 24, 1008, _ADA, {**_both(165.2), "float32": 82.6, "fp8": 330.3, "int8": 660.6}
    ),
    _row("L4", 24, 300, _L4, {**_both(121), "float32": 30.3, "fp8": 242.5, "int8": 242.5}),
    _row("L40S", 48, 864, _L40S, {**_both(362), "float32": 91.6, "fp8": 733, "int8": 733}),
    _row("H100-PCIe", 80, 2000, _H100, {**_both(756), "float32": 51, "fp8": 1513, "int8": 1513}),
    _row("H100-SXM", 80, 3350, _H100, _HOPPER),
    _row("H200", 141, 4800, _H200, _HOPPER),
    # One of the eight of a board, whose sheet prints the rates of the board with sparsity.
    _row("B200", 180, 8000, _B200, {**_both(2250), "float32": 75, "fp8": 4500, "int8": 4500}),
    _row(
        "MI300X",
        192,
        5300,
        _MI300X,
        {**_both(1307.4), "float32": 163.4, "fp8": 2614.9, "int8": 2614.9},
    ),
    # The matrix units of a TPU have no float16.
    _row("TPU-v4", 32, 1200, f"{_TPU}/v4", {"bfloat16": 275}),
    _row("TPU-v5e", 16, 819, f"{_TPU}/v5e", {"bfloat16": 197, "int8": 393}),
)

ACCELERATORS: Mapping[str, Accelerator] = {row.name: row for row in _ROWS}


def known_accelerators() -> list[str]:
    """Names of the table."""
    return list(ACCELERATORS)


def accelerator(name: str) -> Accelerator:
    """The row of that name, upper and lower case alike."""
    for row in ACCELERATORS.values():
        if row.name.casefold() == name.casefold():
            return row
    raise UnsupportedError(
        f"accelerator {name!r} is not known{did_you_mean(name, ACCELERATORS)} "
        f"(known: {', '.join(known_accelerators())}); "
        "describe another one with specsim.hardware.Accelerator"
    )
