"""The table of accelerators, its names and aliases, and an accelerator of one's own."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from specsim import hardware
from specsim.checks import InvalidArgumentError, SpecsimError, UnsupportedError
from specsim.hardware.accelerators import ACCELERATOR_ALIASES
from specsim.hardware.lookup import table_text


# Written down apart from the table: dense TFLOP/s and GB/s.
@pytest.mark.parametrize(
    ("name", "number_type", "tera", "giga"),
    [
        # Vendors' data sheets.
        ("P100-PCIe-16GB", "float16", 18.7, 732),
        ("P100-PCIe-16GB", "float32", 9.3, 732),
        ("A100-80GB-SXM", "bfloat16", 312, 2039),
        ("H100-SXM", "bfloat16", 989.4, 3350),
        ("H200", "bfloat16", 989.4, 4800),
        ("L40S", "bfloat16", 362, 864),
        ("MI300X", "bfloat16", 1307.4, 5300),
        ("TPU-v4", "bfloat16", 275, 1200),
        ("TPU-v5e", "bfloat16", 197, 819),
        ("TPU-v5p", "bfloat16", 459, 2765),
        ("TPU-v6e", "int8", 1836, 1638),
        # NVIDIA prints 1,671 and 3,341 TFLOPS with sparsity for the NVL.
        ("H100-NVL", "bfloat16", 1671 / 2, 3938),
        ("H100-NVL", "fp8", 3341 / 2, 3938),
        # Blackwell data sheet, per GPU, with sparsity: 5 and 20 PFLOPS, 4.5 and 18.
        ("GB200", "bfloat16", 5000 / 2, 8000),
        ("GB200", "fp4", 20000 / 2, 8000),
        ("B200", "bfloat16", 4500 / 2, 7700),
        ("B200", "fp4", 18000 / 2, 7700),
        # Blackwell Ultra data sheet: fp4 dense as printed, 62 TB/s of eight GPUs.
        ("B300", "fp4", 14000, 62000 / 8),
        ("B300", "fp8", 9000 / 2, 62000 / 8),
        # 1.08 EFLOPS dense and 576 TB/s of 72 GPUs.
        ("GB300", "fp4", 1_080_000 / 72, 576_000 / 72),
        ("GB300", "fp8", 360_000 / 72, 576_000 / 72),
        ("H20", "bfloat16", 148, 4000),
        ("MI325X", "fp8", 2614.9, 6000),
        # CDNA 4: 256 compute units of 4096, 8192 and 16384 FLOPs a cycle at 2.4 and 2.2 GHz.
        ("MI355X", "bfloat16", 256 * 4096 * 2.4e-3, 8000),
        ("MI355X", "fp8", 256 * 8192 * 2.4e-3, 8000),
        ("MI355X", "fp4", 256 * 16384 * 2.4e-3, 8000),
        ("MI350X", "fp8", 256 * 8192 * 2.2e-3, 8000),
        # 170 multiprocessors at 2407 MHz, 512 FLOPs a cycle of float16 accumulated in float32.
        ("RTX-5090", "bfloat16", 170 * 512 * 2.407e-3, 1792),
        # 188 multiprocessors at 2617 MHz, 1024 FLOPs a cycle.
        ("RTX-PRO-6000-Blackwell", "bfloat16", 188 * 1024 * 2.617e-3, 1792),
        # 142 multiprocessors at 2505 MHz, 1024 FLOPs a cycle.
        ("RTX-6000-Ada", "bfloat16", 142 * 1024 * 2.505e-3, 960),
        ("RTX-A6000", "float16", 309.7 / 2, 768),
        ("Gaudi3", "bfloat16", 1835, 3700),
    ],
)
def test_data_sheets(name: str, number_type: str, tera: float, giga: float) -> None:
    row = hardware.accelerator(name)
    assert row.peak(number_type) == pytest.approx(tera * 1e12, rel=5e-4)
    assert row.bandwidth == pytest.approx(giga * 1e9)


@pytest.mark.parametrize("name", hardware.ACCELERATORS)
def test_every_row_is_whole(name: str) -> None:
    row = hardware.ACCELERATORS[name]
    assert row.name == name
    assert row.source.startswith("https://")
    assert set(row.peak_flops) <= set(hardware.NUMBER_BYTES)
    assert row.interconnect in hardware.INTERCONNECTS.values()
    # Bytes and FLOPs per second are of the same kind on every card: a slip by 1000 shows.
    assert 8e9 < row.memory < 4e11
    # The P100 alone has no tensor units (18.7 TFLOP/s for 732 GB/s); the H20 has few.
    least = {"P100-PCIe-16GB": 25, "H20": 35}.get(name, 50)
    halves = row.peak_flops.get("bfloat16", row.peak_flops.get("float16", 0.0))
    assert least < halves / row.bandwidth < 600
    assert row.bandwidth > row.interconnect.bandwidth


def test_table_has_no_other_columns() -> None:
    columns = next(csv.reader(table_text("accelerators.csv").splitlines()))
    other = {"name", "aliases", "memory_gb", "bandwidth_gb_s", "interconnect", "source", "note"}
    assert set(columns) == {*other, *hardware.NUMBER_BYTES}


# Cards whose sheets double the rate with each halving of the width.
DOUBLING = "H100-PCIe H100-NVL H100-SXM H200 H20 B200 GB200 RTX-6000-Ada RTX-PRO-6000-Blackwell"


@pytest.mark.parametrize("name", [*DOUBLING.split(), "MI300X", "MI325X", "MI350X", "MI355X"])
def test_rates_are_dense_alike(name: str) -> None:
    """One rate with sparsity among dense ones would be off by two."""
    peaks = hardware.accelerator(name).peak_flops
    assert peaks["float16"] == peaks["bfloat16"]
    assert peaks["fp8"] == pytest.approx(2 * peaks["bfloat16"], rel=1e-3)
    assert peaks["int8"] == peaks["fp8"]
    if "fp4" in peaks:
        assert peaks["fp4"] == pytest.approx(2 * peaks["fp8"], rel=1e-3)


def test_blackwell_ultra_has_more_fp4_and_little_int8() -> None:
    for name in ("B300", "GB300"):
        peaks = hardware.accelerator(name).peak_flops
        assert peaks["fp8"] == 2 * peaks["bfloat16"]
        assert 3 <= peaks["fp4"] / peaks["fp8"] < 3.2
        assert peaks["int8"] < peaks["bfloat16"] / 10


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("H100", "H100-SXM"),
        ("h100", "H100-SXM"),
        ("A100", "A100-80GB-SXM"),
        ("H200-SXM", "H200"),
        ("mi300", "MI300X"),
        ("rtx 4090", "RTX-4090"),
        ("tpu_v6e", "TPU-v6e"),
        # As drivers say it.
        ("H100-80GB-HBM3", "H100-SXM"),
        ("A100-SXM4-40GB", "A100-40GB-SXM"),
        ("Tesla-V100-SXM2-16GB", "V100-SXM2-16GB"),
        ("GeForce-RTX-5090", "RTX-5090"),
    ],
)
def test_aliases_in_any_case(asked: str, name: str) -> None:
    assert hardware.accelerator(asked) is hardware.ACCELERATORS[name]


def test_no_name_is_another_ones_alias() -> None:
    called = [*hardware.ACCELERATORS, *ACCELERATOR_ALIASES]
    letters = {"".join(filter(str.isalnum, each.casefold())) for each in called}
    assert len(letters) == len(called)


def test_near_misses_are_suggested() -> None:
    with pytest.raises(UnsupportedError, match=r"did you mean .*MI355X") as refusal:
        hardware.accelerator("MI365X")
    message = str(refusal.value)
    assert "\n" not in message
    assert all(name in message for name in hardware.ACCELERATORS)


OWN = {
    "name": "mine",
    "memory_gb": 64,
    "bandwidth_gb_s": 1000,
    "tflops": {"bfloat16": 200.5, "fp4": 800},
}


def write(folder: Path, change: dict[str, Any]) -> str:
    path = folder / "my.json"
    path.write_text(json.dumps({**OWN, **change}), encoding="utf-8")
    return str(path)


def test_an_accelerator_of_ones_own(tmp_path: Path) -> None:
    plain = hardware.accelerator(write(tmp_path, {}))
    assert plain == hardware.Accelerator(
        "mine", {"bfloat16": 200.5e12, "fp4": 800e12}, 1e12, 64 * 2.0**30, source=""
    )
    named = hardware.accelerator(write(tmp_path, {"interconnect": "nvlink4", "source": "sheet"}))
    assert named.interconnect is hardware.interconnect("NVLink4")
    assert named.source == "sheet"
    link = {"name": "wire", "bandwidth_gb_s": 10, "latency_us": 4}
    own = hardware.accelerator(write(tmp_path, {"interconnect": link})).interconnect
    assert own == hardware.Interconnect("wire", 10e9, 4 * 1e-6, source="")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"memory": 64}, "unknown field `memory`"),
        ({"memory_gb": "64"}, r"memory_gb"),
        ({"memory_gb": -1}, "memory of mine must be >= 0, got -1.0"),
        ({"bandwidth_gb_s": 0}, "bandwidth of mine must be > 0"),
        ({"tflops": {}}, "peak_flops of mine must name a number type"),
        ({"tflops": {"bf16": 1}}, "tflops of 'bf16' is not known.*bfloat16"),
        ({"tflops": {"fp8": 0}}, "peak_flops of fp8 of mine must be > 0"),
        ({"interconnect": "NVLink9"}, "interconnect 'NVLink9' is not known, did you mean"),
        ({"interconnect": {"name": "wire"}}, "bandwidth_gb_s"),
        ({"interconnect": {**OWN, "latency_us": 1}}, "unknown field"),
    ],
)
def test_a_bad_file_is_one_line_with_its_name(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=said) as refusal:
        hardware.accelerator(write(tmp_path, change))
    assert "my.json" in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text("{", encoding="utf-8")
    (tmp_path / "folder.json").mkdir()
    for name, said in (
        ("none.json", "no such file"),
        ("broken.json", "truncated"),
        ("folder.json", "is a folder"),
    ):
        with pytest.raises(SpecsimError, match=f"accelerator .*{name}: .*{said}"):
            hardware.accelerator(str(tmp_path / name))


# nvidia-smi, memory total, in MiB.
@pytest.mark.parametrize(
    ("name", "mebibytes"),
    [("H200", 143_771), ("L40S", 46_068), ("L4", 23_034), ("A10", 23_028), ("T4", 15_360)],
)
def test_memory_is_what_the_driver_shows(name: str, mebibytes: int) -> None:
    assert hardware.accelerator(name).memory == pytest.approx(mebibytes * 2**20, rel=0.005)
