"""Accelerators by their vendors' data sheets: peak arithmetic, memory bandwidth, memory.

Every rate is for dense matrices.  NVIDIA prints rates "with sparsity" for many cards, twice what
a dense matrix gets; here they are halved.  GeForce cards accumulate float16 products in float32
at half the rate of accumulation in float16; the float32 one is here, as inference uses it.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources

from specsim.checks import InvalidArgumentError, UnsupportedError, did_you_mean, number
from specsim.hardware.shapes import NUMBER_BYTES


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


def _table() -> dict[str, Accelerator]:
    """The rows of ``configs/accelerators.csv``, which are in GB, GB/s and TFLOP/s."""
    text = (resources.files("specsim") / "configs" / "accelerators.csv").read_text("utf-8")
    return {
        row["name"]: Accelerator(
            name=row["name"],
            peak_flops={name: float(row[name]) * 1e12 for name in NUMBER_BYTES if row.get(name)},
            bandwidth=float(row["bandwidth_gb_s"]) * 1e9,
            memory=float(row["memory_gb"]) * 1e9,
            source=row["source"],
        )
        for row in csv.DictReader(text.splitlines())
    }


ACCELERATORS: Mapping[str, Accelerator] = _table()


def accelerator(name: str) -> Accelerator:
    """The row of that name, upper and lower case alike."""
    for row in ACCELERATORS.values():
        if row.name.casefold() == name.casefold():
            return row
    raise UnsupportedError(
        f"accelerator {name!r} is not known{did_you_mean(name, ACCELERATORS)} "
        f"(known: {', '.join(ACCELERATORS)}); "
        "describe another one with specsim.hardware.Accelerator"
    )
