"""Xia22's study: its checks, and our rows beside what they are made of."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from specsim.conversions import acceptance_length_from_alpha
from specsim.rules import TopBeta
from specsim.schemes import Scheme, SpecDec, SpeculativeDecoding
from studies.common.measured import Measured
from studies.common.study import Tables, reference
from studies.specdec import devices as specdec_devices
from studies.specdec.page import STUDY
from tests.support.pages import decoding, document
from tests.support.profiles import write


def greedy_profile(folder: Path, decoded: Sequence[dict[str, Any]]) -> Path:
    """The invented profile at temperature 0; a drawn trace stands for the greedy one."""
    path = write(folder)
    content = json.loads(path.read_text())
    for part in ("acceptance", "overhead"):
        for row in content[part]:
            (row.get("sampling") or row)["temperature"] = 0.0
    path.write_text(json.dumps(content))
    if decoded:
        Measured.at(path).beside("decoders").write_text(document(decoded))
    return path


def write_positions(file: Path) -> pd.DataFrame:
    """Scored text at temperature 0 of a target and a draft with six tokens."""
    random = np.random.default_rng(5)
    p, q = random.dirichlet(np.full(6, 0.7), size=(2, 400))
    label, best, drafted = random.integers(0, 6, 400), p.argmax(1), q.argmax(1)
    rank = (p > p[np.arange(400), drafted][:, None]).sum(1)
    gap = np.log(p.max(1) / p[np.arange(400), drafted])
    columns = {
        "request": np.arange(400) // 20,
        "logp_target": np.where(best == label, 0.0, -np.inf),
        "logp_draft": np.where(drafted == label, 0.0, -np.inf),
        "tv": (best != drafted).astype(float),
        "target_top_is_label": (best == label).astype(float),
        "draft_top_is_label": (drafted == label).astype(float),
        "unscaled_target_max": p.max(1),
        "unscaled_bild_greedy": -np.log(p[np.arange(400), drafted]),
    }
    for beta, tau in ((3, 1.0), (5, 3.0)):
        emitted = np.where((rank < beta) & (gap <= tau), drafted, best)
        stem = f"TopBeta(beta={beta}, tau={tau:g})"
        columns[f"{stem}.rejection"] = (emitted != drafted).astype(float)
        columns[f"{stem}.top"] = (emitted == label).astype(float)
        columns[f"{stem}.logp"] = np.where(emitted == label, 0.0, -np.inf)
    frame = pd.DataFrame(columns)
    frame.to_parquet(file)
    return frame


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    def row(scheme: Scheme, tokens: float, speedup: float, **changes: Any) -> dict[str, Any]:
        return decoding(scheme, tokens, speedup, temperature=0.0, **changes)

    path = greedy_profile(
        tmp_path_factory.mktemp("full"),
        [
            row(SpeculativeDecoding(4), 2.5, 1.2),
            row(SpecDec(4, "masks"), 3.0, 1.5),
            row(SpecDec(8, "masks"), 3.6, 1.6),
            row(SpecDec(8, "masks", rule=TopBeta(3, 1.0)), 4.0, 1.8, agreement=0.3),
            row(SpecDec(8, "masks", rule=TopBeta(5, 3.0)), 4.2, 1.5, agreement=0.3),
        ],
    )
    write_positions(Measured.at(path).positions_file(0.0))
    return Measured.at(path)


def test_every_row_of_the_running_text_is_explained(tables: Tables) -> None:
    checks = STUDY.checks(tables)
    assert [each.item for each in checks] == [
        row["setting"] for row in reference("xia22_text_figures")
    ]
    assert all(each.reason and each.ours is None for each in checks)
    # Each printed number once: three speedups, three BLEU, one block size.
    assert [each.printed for each in checks] == [3.0, 3.6, 4.5, 26.62, 27.02, 26.64, 30]


def test_blocks_are_taken_apart(tables: Tables) -> None:
    (row,) = [each for each in tables["blocks"] if each["drafter"] == "masks" and each["v"]]
    # The profile has no host time, v(5) = 1.4: 3 tokens at 1.5 times plain decoding cost 2 runs.
    assert (row["block_size"], row["block_cost"]) == (4, pytest.approx(2.0))
    assert row["v"] == pytest.approx(1.4)
    assert row["beside_v"] == pytest.approx(0.6)
    assert acceptance_length_from_alpha(row["alpha"], 4) == pytest.approx(3.0)


def test_law_of_the_masks(tables: Tables) -> None:
    law = {row["block_size"]: row for row in tables["law"]}
    assert sorted(law) == list(range(1, specdec_devices.WIDEST + 1))
    # alpha is that of the widest block, so the law gives its tokens back.
    assert law[8]["tokens_per_call"] == pytest.approx(3.6)
    for k in range(2, specdec_devices.WIDEST + 1):
        assert law[k]["tokens_per_call"] > law[k - 1]["tokens_per_call"]
        # Without the bonus token k masks yield what k - 1 yield with it.
        assert law[k]["without_bonus"] == pytest.approx(law[k - 1]["tokens_per_call"])
    for k in range(1, 5):
        cost = 1 + 0.1 * k + 0.6
        assert law[k]["speedup_here"] == pytest.approx(law[k]["tokens_per_call"] / cost)
    assert law[5]["speedup_here"] is None  # target runs were timed on 5 tokens at most


def test_grid_of_scored_text(measured: Measured, tables: Tables) -> None:
    scored = [row for row in tables["grid"] if row["from"] == "scored text"]
    ranked = {(row["beta"], row["tau"]): row for row in scored}
    frame = pd.read_parquet(measured.positions_file(0.0))
    strict = ranked[1, 0.0]
    assert strict["acceptance"] == pytest.approx(1 - frame["tv"].mean())
    assert strict["gain"] == strict["low"] == strict["high"] == 0
    for beta, tau in ((3, 1.0), (5, 3.0)):
        row = ranked[beta, tau]
        assert row["gain"] == pytest.approx(100 * (row["accuracy"] - strict["accuracy"]))
        assert row["low"] <= row["gain"] <= row["high"]
        # Any rank accepts whatever the beta first ones do.
        assert strict["acceptance"] <= row["acceptance"] <= ranked[None, tau]["acceptance"]
        assert row["accepted_of_8"] < row["accepted_of_25"] < 25
    # Six tokens have no rank beyond the sixth, so the fifth excludes little within 3 nats.
    near = np.log(frame["unscaled_target_max"]) + frame["unscaled_bild_greedy"] <= 3
    right = np.where(near, frame["draft_top_is_label"], frame["target_top_is_label"])
    assert ranked[None, 3.0]["accuracy"] == pytest.approx(right.mean())


def test_devices_pay_for_what_they_multiply(tables: Tables) -> None:
    rows = {(row["device"], row["batch"]): row for row in tables["devices"]}
    assert len(rows) == len(specdec_devices.DEVICES) * len(specdec_devices.BATCHES)
    for row in rows.values():
        needed = row["needed, SpecDec"]
        # At the tokens that are needed, the speedup is the printed one.
        assert needed / (row["c"] + row["v"]) * row["beams"] == pytest.approx(3.0)
        assert row["v"] >= 1
        if row["batch"] == 32:  # all bound by arithmetic: 40 positions drafted, 26 verified
            assert row["c"] / row["v"] == pytest.approx(40 / 26, rel=0.02)
    for device, _ in specdec_devices.DEVICES:
        costs = [rows[device.name, batch]["v"] for batch in specdec_devices.BATCHES]
        assert costs == sorted(costs)


def test_base_shape_is_the_papers() -> None:
    # Vaswani17's base model has 65 million parameters with its vocabulary of 37,000.
    rest = specdec_devices.BASE.parameters - 32_000 * 512
    assert rest + 37_000 * 512 == pytest.approx(65e6, rel=0.05)
    assert len(specdec_devices.BASE.layers) == 6


def test_opening_and_claims_tell_what_was_decoded(tables: Tables) -> None:
    text = " ".join(STUDY.opening(tables))
    assert "masks of 8 make greedy decoding 1.60 times as fast" in text
    assert "1 of 2 looser settings are faster still" in text
    holds = {row["claim"]: row["holds"] for row in tables["claims"]}
    assert holds["SpecDec++ is faster than SpecDec"] == "1 of 2"
    assert set(STUDY.draw(tables)) == {"blocks", "grid", "verify", "devices"}
