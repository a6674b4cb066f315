"""What joins the cards of a node, or nodes, and how long collectives take over it.

Bandwidth is what **one card sends in one direction**.  Data sheets mostly print both directions
together: NVLink 4 with 900 GB/s sends 450.

Times are those of the standard model, a latency and the bytes a card sends over its bandwidth
(Hockney; Thakur, Rabenseifner and Gropp 2005, "Optimization of Collective Communication
Operations in MPICH"), with p cards and n bytes:

    reduce-scatter, all-gather, all-to-all   a + (p - 1) / p n / B
    all-reduce                               a + 2 (p - 1) / p n / B
    point to point                           a + n / B

The factors are those by which NCCL's tests turn times into bus bandwidth
(https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md).  The latency ``a`` is paid
once a collective and not once a step of a ring: for the small messages of decoding, where it
matters, engines exchange in one or two steps.  Its value is the base latency and one exchange of
NCCL's own tuning table (ring, LL: 6.6 and 0.6 us on NVLink, 1.0 on PCIe, 2.7 on a network), or
measured where the row says so.  Measured on H100 for 512 B, SGLang's kernel takes 3.7 to 5.9 us
and vLLM's without a CUDA graph 9.1 to 10.1 (https://github.com/sgl-project/sglang/pull/2904).

**The bandwidth is a data sheet's, so a long collective here is a bound**: NCCL reaches 366 of
450 GB/s on four H100.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path

import msgspec

from specsim.checks import InvalidArgumentError, integer, number
from specsim.hardware import lookup


@dataclass(frozen=True)
class Interconnect:
    """What joins cards.

    name : as in the table
    bandwidth : bytes/s that one card sends in one direction, to all others together
    latency_s : seconds that a collective takes however small it is
    source : the data sheet of the bandwidth, and where the latency is from
    peer_bandwidth : bytes/s from one card to one other, where every pair has wires of its own
        (Infinity Fabric): p cards then send (p - 1) times that.  None behind a switch, where one
        card reaches any other with its whole bandwidth
    """

    name: str
    bandwidth: float
    latency_s: float
    source: str
    peer_bandwidth: float | None = None

    def __post_init__(self) -> None:
        rates = {"bandwidth": self.bandwidth}
        if self.peer_bandwidth is not None:
            rates["peer_bandwidth"] = self.peer_bandwidth
        for name, value in rates.items():
            if number(f"{name} of {self.name}", value, low=0.0) == 0:
                raise InvalidArgumentError(f"{name} of {self.name} must be > 0, got 0")
        number(f"latency_s of {self.name}", self.latency_s, low=0.0)

    def bandwidth_among(self, cards: int) -> float:
        """Bytes/s that one of ``cards`` >= 2 sends in one direction to the others together."""
        if self.peer_bandwidth is None:
            return self.bandwidth
        return min(self.bandwidth, (cards - 1) * self.peer_bandwidth)


class InterconnectFile(msgspec.Struct, forbid_unknown_fields=True):
    """An interconnect of one's own, in the units of the table."""

    name: str
    bandwidth_gb_s: float
    latency_us: float
    source: str = ""
    peer_bandwidth_gb_s: float | None = None

    def interconnect(self) -> Interconnect:
        """In bytes and seconds."""
        peer = self.peer_bandwidth_gb_s
        return Interconnect(
            name=self.name,
            bandwidth=self.bandwidth_gb_s * 1e9,
            latency_s=self.latency_us * 1e-6,
            source=self.source,
            peer_bandwidth=None if peer is None else peer * 1e9,
        )


def _table() -> tuple[dict[str, Interconnect], dict[str, str]]:
    """The rows of ``configs/interconnects.csv``, and their aliases."""
    rows = list(csv.DictReader(lookup.table_text("interconnects.csv").splitlines()))
    links = {
        row["name"]: InterconnectFile(
            name=row["name"],
            bandwidth_gb_s=float(row["bandwidth_gb_s"]),
            latency_us=float(row["latency_us"]),
            source=f"{row['source']}; latency: {row['latency_source']}",
            peer_bandwidth_gb_s=float(peer) if (peer := row["peer_bandwidth_gb_s"]) else None,
        ).interconnect()
        for row in rows
    }
    return links, lookup.split_aliases({row["name"]: row["aliases"] for row in rows})


_LINKS, INTERCONNECT_ALIASES = _table()
INTERCONNECTS: Mapping[str, Interconnect] = _LINKS


def interconnect(name: str) -> Interconnect:
    """The row of that name or alias, in any case, or one's own from a file ``*.json``.

    The file holds ``name``, ``bandwidth_gb_s`` (one card, one direction), ``latency_us`` and, if
    wanted, ``source`` and ``peer_bandwidth_gb_s``.  Raises UnsupportedError for a name that is not
    in the table and InvalidArgumentError for a file that cannot be used.
    """
    if lookup.is_file_name(name):
        path = Path(name)
        own = lookup.read_own("interconnect", path, InterconnectFile)
        with lookup.said_of("interconnect", path):
            return own.interconnect()
    return lookup.find(
        "interconnect",
        name,
        INTERCONNECTS,
        INTERCONNECT_ALIASES,
        "describe another one in a .json file or with specsim.hardware.Interconnect",
    )


def all_reduce_s(link: Interconnect, cards: int, size_bytes: float) -> float:
    """Seconds until every one of p cards holds the sum of their n bytes.

    a + 2 (p - 1) / p n / B: a reduce-scatter and an all-gather with one latency, which is a ring
    (or Rabenseifner's algorithm) when n is large and an engine's two-shot kernel when it is small.
    0 for one card or no bytes.
    """
    return _collective_s(link, cards, size_bytes, 2.0)


def reduce_scatter_s(link: Interconnect, cards: int, size_bytes: float) -> float:
    """Seconds until every one of p cards holds its share of the sum of their n bytes.

    a + (p - 1) / p n / B.  0 for one card or no bytes.
    """
    return _collective_s(link, cards, size_bytes, 1.0)


def all_gather_s(link: Interconnect, cards: int, size_bytes: float) -> float:
    """Seconds until every one of p cards holds all n bytes, of which each began with n / p.

    a + (p - 1) / p n / B.  0 for one card or no bytes.
    """
    return _collective_s(link, cards, size_bytes, 1.0)


def all_to_all_s(link: Interconnect, cards: int, size_bytes: float) -> float:
    """Seconds until every one of p cards has sent each other its share of the n bytes it held.

    a + (p - 1) / p n / B: 1 / p of the bytes stays.  Every share is alike; where one card is sent
    more than the others, give the bytes of that one.  0 for one card or no bytes.
    """
    return _collective_s(link, cards, size_bytes, 1.0)


def point_to_point_s(link: Interconnect, size_bytes: float) -> float:
    """Seconds to send n bytes from one card to one other: a + n / B.  0 for no bytes."""
    size = _checked_size(size_bytes)
    return link.latency_s + size / link.bandwidth_among(2) if size else 0.0


def _collective_s(link: Interconnect, cards: int, size_bytes: float, rounds: float) -> float:
    p = cards if isinstance(cards, int) and cards >= 1 else integer("cards", cards, low=1)
    size = _checked_size(size_bytes)
    if p == 1 or size == 0:
        return 0.0
    return link.latency_s + rounds * (p - 1) / p * size / link.bandwidth_among(p)


def _checked_size(size_bytes: float) -> float:
    # A check of anything takes ten times as long as the formula, and sweeps call it 10^5 times.
    if isinstance(size_bytes, int | float) and 0 <= size_bytes < inf:
        return size_bytes
    return number("size_bytes", size_bytes, low=0.0)
