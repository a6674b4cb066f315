"""Accelerators by their vendors' data sheets: peak arithmetic, memory bandwidth, memory.

Every rate is for dense matrices.  NVIDIA prints rates "with sparsity" for many cards, twice what
a dense matrix gets; here they are halved.  GeForce cards accumulate float16 products in float32
at half the rate of accumulation in float16; the float32 one is here, as inference uses it.

A GB of memory is 2^30 bytes, as data sheets count memory whatever they write: of "80 GB" an H100
reports 79.2 GiB, of "141 GB" an H200 139.8, of "192 GB" an MI300X 192.0.  The one per cent that
drivers keep is not taken off.  Where error correction takes a sixteenth of the memory, which it
does of GDDR in servers, the table has what is left, as nvidia-smi shows it.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from specsim.checks import InvalidArgumentError, UnsupportedError, did_you_mean, number
from specsim.hardware import lookup
from specsim.hardware.interconnects import Interconnect, InterconnectFile, interconnect
from specsim.hardware.shapes import NUMBER_BYTES

# What runs on a card without units for a number type.
_INSTEAD = {
    "bfloat16": "float16",
    "fp8": "fp8-weight-only",
    "int8": "int8-weight-only",
    "fp4": "nvfp4-weight-only",
}


_SIXTEEN_BITS = {"float16", "bfloat16"}


@dataclass(frozen=True)
class Accelerator:
    """One accelerator.

    name : as in the table
    peak_flops : dense FLOP/s (integer operations for int8) by number type of the matrix products
    bandwidth : bytes/s of the device memory
    memory : bytes of the device memory
    source : the data sheet
    interconnect : what joins the cards of a node as they are commonly built; None if unknown
    """

    name: str
    peak_flops: Mapping[str, float]
    bandwidth: float
    memory: float
    source: str
    interconnect: Interconnect | None = None

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
                f"(known: {', '.join(sorted(self.peak_flops))})" + self._instead(number_type)
            )
        return self.peak_flops[number_type]

    def _instead(self, number_type: str) -> str:
        """What runs on it in place of that, in words; weight-only formats multiply in 16 bits."""
        other = _INSTEAD.get(number_type)
        sixteen = self.peak_flops.keys() & ({"float16"} if other == "float16" else _SIXTEEN_BITS)
        return f"; dtype {other} runs on it" if other and sixteen else ""


class AcceleratorFile(msgspec.Struct, forbid_unknown_fields=True):
    """An accelerator of one's own, in the units of the table."""

    name: str
    memory_gb: float
    bandwidth_gb_s: float
    tflops: dict[str, float]
    interconnect: str | InterconnectFile | None = None
    source: str = ""

    def accelerator(self) -> Accelerator:
        """In bytes, seconds and FLOPs; refuses a number type that no table has."""
        for number_type in self.tflops:
            if number_type not in NUMBER_BYTES:
                near = did_you_mean(number_type, NUMBER_BYTES)
                raise InvalidArgumentError(
                    f"tflops of {number_type!r} is not known{near} "
                    f"(known: {', '.join(NUMBER_BYTES)})"
                )
        link = self.interconnect
        if isinstance(link, InterconnectFile):
            joined: Interconnect | None = link.interconnect()
        else:
            joined = None if link is None else interconnect(link)
        return Accelerator(
            name=self.name,
            peak_flops={name: rate * 1e12 for name, rate in self.tflops.items()},
            bandwidth=self.bandwidth_gb_s * 1e9,
            memory=self.memory_gb * 2.0**30,
            source=self.source,
            interconnect=joined,
        )


def _table() -> tuple[dict[str, Accelerator], dict[str, str]]:
    """The rows of ``configs/accelerators.csv``, in GB, GB/s and TFLOP/s, and their aliases."""
    rows = list(csv.DictReader(lookup.table_text("accelerators.csv").splitlines()))
    cards = {
        row["name"]: AcceleratorFile(
            name=row["name"],
            memory_gb=float(row["memory_gb"]),
            bandwidth_gb_s=float(row["bandwidth_gb_s"]),
            tflops={name: float(row[name]) for name in NUMBER_BYTES if row[name]},
            interconnect=row["interconnect"],
            source=row["source"],
        ).accelerator()
        for row in rows
    }
    return cards, lookup.split_aliases({row["name"]: row["aliases"] for row in rows})


_CARDS, ACCELERATOR_ALIASES = _table()
ACCELERATORS: Mapping[str, Accelerator] = _CARDS


def accelerator(name: str) -> Accelerator:
    """The row of that name or alias, in any case, or one's own from a file ``*.json``.

    ``H100`` is the one in SXM boards, as ``A100`` is that of 80 GB.  The file holds ``name``,
    ``memory_gb``, ``bandwidth_gb_s``, ``tflops`` (dense, by number type) and, if wanted,
    ``interconnect`` (a name, or an object as ``interconnect`` reads it) and ``source``.  Raises
    UnsupportedError for a name that is not in the table and InvalidArgumentError for a file that
    cannot be used.
    """
    if lookup.is_file_name(name):
        path = Path(name)
        own = lookup.read_own("accelerator", path, AcceleratorFile)
        with lookup.said_of("accelerator", path):
            return own.accelerator()
    return lookup.find(
        "accelerator",
        name,
        ACCELERATORS,
        ACCELERATOR_ALIASES,
        "describe another one in a .json file or with specsim.hardware.Accelerator",
    )


def accelerator_of(device_name: str) -> Accelerator | None:
    """The row of a device by the name that its driver gives; None where there is none.

    Drivers say "NVIDIA H200" where the data sheet says H200.
    """
    try:
        return accelerator(device_name.removeprefix("NVIDIA ").replace(" ", "-"))
    except UnsupportedError:
        return None
