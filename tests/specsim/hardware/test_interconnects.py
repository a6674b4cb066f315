"""The table of interconnects, and how long collectives take over them."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from specsim import hardware
from specsim.checks import InvalidArgumentError, SpecsimError, UnsupportedError
from specsim.hardware.interconnects import INTERCONNECT_ALIASES
from specsim.hardware.lookup import table_text
from tests.support.refusals import refuses

NVLINK4 = hardware.interconnect("NVLink4")
KIB, MIB = 1024, 1024**2
Collective = Callable[[hardware.Interconnect, int, float], float]
COLLECTIVES: dict[str, Collective] = {
    "all-reduce": hardware.all_reduce_s,
    "reduce-scatter": hardware.reduce_scatter_s,
    "all-gather": hardware.all_gather_s,
    "all-to-all": hardware.all_to_all_s,
}
every_collective = pytest.mark.parametrize("collective", COLLECTIVES.values(), ids=COLLECTIVES)
every_link = pytest.mark.parametrize("link", hardware.INTERCONNECTS.values(), ids=lambda x: x.name)


# Data sheets, written down apart from the table: GB/s of one card in both directions together.
@pytest.mark.parametrize(
    ("name", "both"),
    [
        ("NVLink2", 300),
        ("NVLink3", 600),
        ("NVLink4", 900),
        ("NVLink5", 1800),
        ("NVLink-bridge", 600),
        # Seven links of 128 and of 153.6.
        ("InfinityFabric-MI300", 896),
        ("InfinityFabric-MI350", 7 * 153.6),
        # 8, 16 and 32 GT/s on 16 lanes, 128 bits in 130.
        ("PCIe3-x16", 2 * 8 * 16 / 8 * 128 / 130),
        ("PCIe4-x16", 2 * 16 * 16 / 8 * 128 / 130),
        ("PCIe5-x16", 2 * 32 * 16 / 8 * 128 / 130),
        ("InfiniBand-HDR", 2 * 200 / 8),
        ("InfiniBand-NDR", 2 * 400 / 8),
        ("InfiniBand-XDR", 2 * 800 / 8),
        ("ICI-v5e", 400),
        ("ICI-v5p", 1200),
        ("ICI-v6e", 800),
        ("Gaudi3-Ethernet", 1050),
    ],
)
def test_data_sheets(name: str, both: float) -> None:
    assert hardware.interconnect(name).bandwidth == pytest.approx(both / 2 * 1e9, rel=1e-3)


@every_link
def test_every_row_is_whole(link: hardware.Interconnect) -> None:
    sheet, latency = link.source.split("; latency: ")
    assert sheet.startswith("https://")
    assert latency.startswith("https://")
    assert 1e10 < link.bandwidth < 1e12
    assert 1e-6 <= link.latency_s < 1e-4
    if link.peer_bandwidth is not None:
        # Eight cards, each wired to the seven others.
        assert 7 * link.peer_bandwidth == pytest.approx(link.bandwidth)


def test_table_has_no_other_columns() -> None:
    columns = next(csv.reader(table_text("interconnects.csv").splitlines()))
    numbers = {"bandwidth_gb_s", "peer_bandwidth_gb_s", "latency_us"}
    assert set(columns) == {"name", "aliases", "source", "latency_source", "note", *numbers}


def test_latencies_are_nccls() -> None:
    # NCCL src/graph/tuning.cc, b6475625: ring LL, base 6.6 us, an exchange 0.6, 1.0 and 2.7 us.
    for name, exchange in (("NVLink4", 0.6), ("PCIe5-x16", 1.0), ("InfiniBand-NDR", 2.7)):
        assert hardware.interconnect(name).latency_s == pytest.approx((6.6 + exchange) * 1e-6)


@every_collective
def test_nothing_is_sent_by_one_card_or_of_no_bytes(collective: Collective) -> None:
    assert collective(NVLINK4, 1, 1e9) == 0.0
    assert collective(NVLINK4, 8, 0) == 0.0
    assert hardware.point_to_point_s(NVLINK4, 0) == 0.0


@every_link
@every_collective
def test_more_bytes_take_longer(link: hardware.Interconnect, collective: Collective) -> None:
    for cards in (2, 3, 8, 72):
        times = [collective(link, cards, size) for size in (1, KIB, MIB, 64 * MIB)]
        assert times == sorted(set(times))
        assert times[0] > link.latency_s


@every_link
@every_collective
def test_more_cards_take_longer(link: hardware.Interconnect, collective: Collective) -> None:
    """Behind a switch; where every pair has wires of its own, more cards are more wires."""
    times = [collective(link, cards, 16 * MIB) for cards in range(1, 17)]
    if link.peer_bandwidth is None:
        assert times == sorted(set(times))
    else:
        assert times[1:8] == sorted(times[1:8], reverse=True)
        assert times[8:] == sorted(set(times[8:]))


@every_link
def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather(link: hardware.Interconnect) -> None:
    for cards in (2, 4, 8):
        parts = (f(link, cards, MIB) for f in (hardware.reduce_scatter_s, hardware.all_gather_s))
        whole = hardware.all_reduce_s(link, cards, MIB)
        assert whole + link.latency_s == pytest.approx(sum(parts), rel=1e-12)


def ring_all_reduce_s(link: hardware.Interconnect, cards: int, size: int) -> float:
    """Step by step: each card sends one share to its neighbour, 2 (p - 1) times."""
    shares = [[float(size) / cards] * cards for _ in range(cards)]
    seconds = link.latency_s
    for _ in ("reduce-scatter", "all-gather"):
        for _ in range(cards - 1):
            seconds += max(share[0] for share in shares) / link.bandwidth
    return seconds


def test_a_ring_step_by_step() -> None:
    for cards in (2, 3, 8):
        stepwise = ring_all_reduce_s(NVLINK4, cards, 3 * MIB)
        assert hardware.all_reduce_s(NVLINK4, cards, 3 * MIB) == pytest.approx(stepwise)


def test_cards_wired_in_pairs_use_the_wires_they_have() -> None:
    fabric = hardware.interconnect("InfinityFabric-MI300")
    assert fabric.bandwidth_among(2) == 64e9
    assert fabric.bandwidth_among(4) == 192e9
    assert fabric.bandwidth_among(8) == fabric.bandwidth_among(16) == 448e9
    assert hardware.point_to_point_s(fabric, 64e9) == pytest.approx(1 + fabric.latency_s)
    assert hardware.point_to_point_s(NVLINK4, 450e9) == pytest.approx(1 + NVLINK4.latency_s)


# us on H100: SGLang's kernel, vLLM's without a CUDA graph; 512 B over 2, 4 and 8 cards.
# https://github.com/sgl-project/sglang/pull/2904
@pytest.mark.parametrize(("cards", "fast", "slow"), [(2, 3.7, 9.5), (4, 4.8, 9.1), (8, 5.9, 10.1)])
def test_a_small_all_reduce_against_measured_kernels(cards: int, fast: float, slow: float) -> None:
    assert fast < 1e6 * hardware.all_reduce_s(NVLINK4, cards, 512) < slow


# us on 8 MI355X by KiB.  https://github.com/vllm-project/vllm/pull/39080
@pytest.mark.parametrize(
    ("kib", "measured"), [(48, 6.7), (96, 6.8), (192, 7.0), (384, 7.5), (768, 9.6), (1536, 12.9)]
)
def test_all_reduce_of_eight_mi355x(kib: int, measured: float) -> None:
    """The latency is that of 24 KiB; a data sheet's bandwidth is never quite reached."""
    link = hardware.accelerator("MI355X").interconnect
    assert link is not None
    predicted = 1e6 * hardware.all_reduce_s(link, 8, kib * KIB)
    assert 0.88 < predicted / measured < 1.02


@pytest.mark.parametrize(
    ("measured_us", "bound_us", "share"),
    [
        # 128 MiB over 8 H100, symmetric memory.  https://github.com/NVIDIA/Megatron-LM/pull/5596
        (363.2, 1e6 * hardware.all_gather_s(NVLINK4, 8, 128 * MIB), 0.7),
        # 256 MiB over 8 Gaudi 3, 1000 in 0.915792 s.
        # https://docs.habana.ai/en/latest/Management_and_Monitoring/Network_Configuration/Collectives_Performance.html
        (
            915.792,
            1e6 * hardware.all_reduce_s(hardware.interconnect("Gaudi3-Ethernet"), 8, 256 * MIB),
            0.95,
        ),
        # 1 and 8 MiB over 4 MI300X.  https://github.com/sgl-project/sglang/pull/6619
        (
            22.91,
            1e6 * hardware.all_reduce_s(hardware.interconnect("InfinityFabric-MI300"), 4, MIB),
            0.6,
        ),
        (
            118.31,
            1e6 * hardware.all_reduce_s(hardware.interconnect("InfinityFabric-MI300"), 4, 8 * MIB),
            0.6,
        ),
    ],
)
def test_a_long_collective_is_bounded(measured_us: float, bound_us: float, share: float) -> None:
    assert share < bound_us / measured_us < 1


def test_names() -> None:
    for name in ("nvlink4", "NVLink 4.0", "NVLINK-4"):
        assert hardware.interconnect(name) is NVLINK4
    assert hardware.interconnect("ndr").name == "InfiniBand-NDR"
    with pytest.raises(UnsupportedError, match=r"did you mean .*NVLink5") as refusal:
        hardware.interconnect("NVLink6")
    assert all(name in str(refusal.value) for name in hardware.INTERCONNECTS)
    called = [*hardware.INTERCONNECTS, *INTERCONNECT_ALIASES]
    assert len({"".join(filter(str.isalnum, x.casefold())) for x in called}) == len(called)


def test_an_interconnect_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "wire.json"
    own = {"name": "wire", "bandwidth_gb_s": 80, "latency_us": 5, "source": "sheet"}
    path.write_text(json.dumps(own), encoding="utf-8")
    assert hardware.interconnect(str(path)) == hardware.Interconnect(
        "wire", 80e9, 5 * 1e-6, source="sheet"
    )
    for change, said in (
        ({"latency": 5}, "unknown field `latency`"),
        ({"latency_us": -5}, "latency_s of wire must be >= 0"),
        ({"bandwidth_gb_s": 0}, "bandwidth of wire must be > 0"),
        ({"peer_bandwidth_gb_s": 0}, "peer_bandwidth of wire must be > 0"),
    ):
        path.write_text(json.dumps({**own, **change}), encoding="utf-8")
        with pytest.raises(InvalidArgumentError, match=f"wire.json: .*{said}"):
            hardware.interconnect(str(path))


test_what_cannot_be_is_refused = refuses(
    (lambda: hardware.all_reduce_s(NVLINK4, 0, 1), "cards must be a whole number >= 1, got 0"),
    (lambda: hardware.all_reduce_s(NVLINK4, 2, -1), "size_bytes must be >= 0, got -1"),
    (lambda: hardware.point_to_point_s(NVLINK4, float("nan")), "size_bytes must be"),
    (lambda: hardware.Interconnect("x", 0.0, 0.0, ""), "bandwidth of x must be > 0"),
    error=SpecsimError,
)
