"""Leviathan23's study: its checks, and our rows beside what they are made of."""

from __future__ import annotations

import numpy as np
import pytest

from calibrate.models.sampling import Sampling
from calibrate.validate.catalogue import settings
from specsim import evaluate
from specsim.checks import Floats
from specsim.frontier import LabelledPositions
from specsim.rules import Distributions, Lenient
from specsim.schemes import SpeculativeCascade, SpeculativeDecoding
from studies.common.decoded import LOSSLESS
from studies.common.measured import Measured
from studies.common.study import Tables, reference
from studies.leviathan import tables as leviathan_tables
from studies.leviathan.page import STUDY
from tests.support.pages import decoding, document
from tests.support.profiles import write

# Rows of each CSV, and numbers that each of its rows prints.
PRINTED = {
    "Leviathan23 Table 1": ("leviathan23_table1", 2),  # operations, speed
    "Leviathan23 Table 2": ("leviathan23_table4", 1),  # EMP
    "Leviathan23 Table 3": ("leviathan23_table3", 1),
    "Leviathan23 Table 4": ("leviathan23_table4", 1),  # EXP
    "Leviathan23 Table 5": ("leviathan23_table5_lenience", 1),
}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    path = write(tmp_path_factory.mktemp("full"))
    rows = [
        decoding(SpeculativeDecoding(4), 2.0, 1.3),
        decoding(SpeculativeDecoding(3, "bigram"), 1.3, 0.9),
        decoding(SpeculativeDecoding(4, "middle"), 3.0, 1.6),
        decoding(SpeculativeCascade(4, "draft", rule=Lenient(0.5)), 2.4, 1.5),
    ]
    Measured.at(path).beside("decoders").write_text(document(rows))
    speeds = {"formula_speedup": 1.4, "predicted_speedup": 1.2, "measured_speedup": 1.3}
    interval = {"measured_low": 1.2, "measured_high": 1.4}
    validated = {"temperature": 1.0, "prompts": "calibration", "gamma": 4, **speeds, **interval}
    Measured.at(path).beside("speedups").write_text(document([validated]))
    return Measured.at(path)


def test_every_printed_number_is_checked_once(tables: Tables) -> None:
    checks = STUDY.checks(tables)
    for where, (name, numbers) in PRINTED.items():
        found = [each.item for each in checks if each.where == where]
        assert len(found) == len(set(found)) == numbers * len(reference(name)), where
    # Everything that the paper computes itself, but for A.4's speeds at temperature 1.
    missed = [each for each in checks if each.ours is not None and not each.matches]
    assert {each.where for each in missed} == {"Leviathan23 Table 2", "Leviathan23 A.4"}
    assert sum(each.where == "Leviathan23 A.4" for each in missed) == 3


def test_best_gamma_of_table_4_is_the_best(tables: Tables) -> None:
    for row in tables["table4"]:
        speedups = evaluate(row["alpha"], row["c"], np.arange(65)).speedup
        assert row["best_gamma"] == np.argmax(speedups)
        assert row["best_speedup"] == pytest.approx(speedups.max())


def test_rows_of_our_pair_are_the_packages(measured: Measured, tables: Tables) -> None:
    (workload,) = measured.workloads
    own = [row for row in tables["pairs"] if "replay" in row]
    assert [row["gamma"] for row in own] == [1, 2, 3, 4]
    for row, predicted in zip(own, workload.predict([1, 2, 3, 4]), strict=True):
        assert row["replay"] == predicted.speedup
        assert row["formula"] == workload.formula(row["gamma"])
        # The profile's target runs take 1 + 0.1 (n - 1).
        assert row["v"] == pytest.approx(1 + 0.1 * row["gamma"])
    # Decoded at gamma 4 only.
    assert [row["measured"] for row in own] == [None, None, None, 1.3]


def test_alpha_where_blocks_start_explains_a_gamma_of_one(tables: Tables) -> None:
    """E[N] = 1 + alpha at the starts; a request's last block may have no room for a draft."""
    row = next(row for row in tables["pairs"] if row["gamma"] == 1)
    assert row["tokens_by_replay"] == pytest.approx(1 + row["alpha_at_starts"], abs=0.02)


def test_alpha_of_a_decoded_drafter_gives_its_tokens_back(tables: Tables) -> None:
    row = next(row for row in tables["table3"] if row["draft"] == "bigram")
    assert evaluate(row["alpha"], 0.0, 3).tokens_per_call == pytest.approx(1.3)
    cheap = next(row for row in tables["cheap"] if row["draft"] == "bigram")
    assert cheap["speedup_at_c_0"] == pytest.approx(1.3)
    assert cheap["speedup_with_v"] == pytest.approx(1.3 / 1.3)


def test_acceptance_from_text_of_the_target() -> None:
    """Means over x ~ p against sums over the vocabulary; each z fails one time in 15,000."""
    random = np.random.default_rng(3)
    p, q = random.dirichlet(np.full(6, 0.5), size=2)
    tokens = random.choice(6, size=20_000, p=p)
    logp, logq = np.log(p[tokens]), np.log(q[tokens])

    def z(values: Floats, expected: float) -> float:
        return float((values.mean() - expected) / values.std() * np.sqrt(len(values)))

    for lenience in leviathan_tables.LENIENCES:
        rule, rows = Lenient(lenience), Distributions(p, q)
        expected = float(rule.accepted(rows).sum())
        assert abs(z(leviathan_tables.lenient_acceptance(logp, logq, lenience), expected)) < 4
    random_draft = float(np.minimum(p, 1 / 6).sum())
    assert abs(z(leviathan_tables.random_acceptance(logp, 6), random_draft)) < 4


def test_lenience_on_scored_text() -> None:
    """At temperature 0 the draft's token needs l max p; above, acceptance is Lossy's at 1 - l."""
    columns = {
        "tv": np.array([0.4, 0.2]),
        "Lossy(looseness=0.5).rejection": np.array([0.3, 0.1]),
        # p of the draft's token is 0.5 and 0.2, the most probable has 0.5 and 0.5.
        "unscaled_bild_greedy": -np.log([0.5, 0.2]),
        "unscaled_target_max": np.array([0.5, 0.5]),
    }
    positions = LabelledPositions(np.array([0, 1, 2]), columns)
    cases: dict[tuple[float, float], list[float]] = {
        (0.0, 1.0): [1, 0],
        (0.0, 0.5): [1, 0],
        (0.0, 0.4): [1, 1],
        (1.0, 1.0): [0.6, 0.8],
    }
    cases[1.0, 0.5] = [0.7, 0.9]
    for (temperature, lenience), expected in cases.items():
        accepted = leviathan_tables.scored_acceptance(positions, temperature, lenience)
        assert accepted is not None
        np.testing.assert_allclose(accepted, expected)
    assert leviathan_tables.scored_acceptance(positions, 1.0, 0.3) is None


def test_lenient_settings_are_those_of_the_catalogue() -> None:
    for sampling in (Sampling(0.0), Sampling(1.0)):
        rows = [decoding(scheme, 2.0, 1.3) for scheme in settings(sampling)]
        lenient = [row for row in rows if row["rule"] in leviathan_tables.LENIENT_RULES]
        # Beside them stands the lossless setting that drafts as many tokens.
        assert [(row["gamma"], row["threshold"]) for row in lenient] == [(LOSSLESS.gamma, 0.5)]


def test_opening_tells_what_was_decoded(tables: Tables, measured: Measured) -> None:
    text = " ".join(STUDY.opening(tables))
    assert "Decoded, gamma 4 at temperature 1 was the fastest, at 1.30 times plain decoding" in text
    assert "the formula says 1.40 and the replay 1.20" in text
    assert {"speedup", "figure3", "cheap"} <= set(STUDY.draw(tables))


def test_a_profile_alone_is_enough(bare: Measured) -> None:
    tables = STUDY.tables(bare)
    assert all(row["measured"] is None for row in tables["pairs"])
    assert [row["lenience"] for row in tables["table5"] if row["source"] == bare.source] == [
        *leviathan_tables.LENIENCES
    ]
    assert "Nothing was decoded" in " ".join(STUDY.opening(tables))
    assert STUDY.draw(tables)
