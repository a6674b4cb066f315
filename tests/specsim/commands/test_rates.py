"""Rates that say which rates they are, as typed and as called."""

from __future__ import annotations

import json

import numpy as np
import pytest

import specsim
from specsim.schemes import SpeculativeDecoding
from tests.support.command_line import SHAPES, fail, rows, run

MEASURED = specsim.Marginal((0.8, 0.6, 0.5), rounds=3000)


def test_both_kinds_are_the_call(capsys: pytest.CaptureFixture[str]) -> None:
    wanted = specsim.evaluate(MEASURED, 0.1, 5)
    for words in ("--marginal 0.8,0.6,0.5", "--conditional 0.8,0.75,0.8333333333333333"):
        code, out, err = run(
            capsys,
            *f"evaluate {words} --rounds 3000 --c 0.1 --gamma 5 --format json".split(),
        )
        assert code == 0
        (row,) = rows(out)
        assert row["tokens_per_call"] == pytest.approx(wanted.tokens_per_call, rel=1e-9)
        assert row["speedup"] == pytest.approx(wanted.speedup, rel=1e-9)
        assert json.loads(out)["warnings"] == err.splitlines()
        assert "measured at gamma 3; gamma 5 is 2 beyond" in err
        assert "log-odds trend, 90% interval" in err


def test_the_kind_of_drafter_decides(capsys: pytest.CaptureFixture[str]) -> None:
    words = "--marginal 0.8,0.6,0.5 --c 0.1 --gamma 5"
    tokens = {}
    for kind in ("--heads", "--no-heads"):
        _, out, err = run(capsys, "evaluate", *words.split(), kind, "--format", "json")
        tokens[kind] = rows(out)[0]["tokens_per_call"]
        assert ("token mixture" in err) == (kind == "--no-heads")
    assert tokens["--heads"] < tokens["--no-heads"]


def test_where_it_was_measured_nothing_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    words = "--marginal 0.8,0.6,0.5 --c 0.1 --gamma 3 --format json"
    _, out, err = run(capsys, "evaluate", *words.split())
    assert rows(out)[0]["tokens_per_call"] == pytest.approx(2.9)
    assert err == ""


def test_a_bare_list_says_how_it_was_read(capsys: pytest.CaptureFixture[str]) -> None:
    _, _, err = run(capsys, *["evaluate", "--alpha", "0.8,0.6", "--c", "0.1", "--gamma", "4"])
    assert "alpha 0.8,0.6 was read as conditional rates" in err
    assert "the last, 0.6, is taken to hold on to gamma 4" in err
    _, _, err = run(capsys, *["evaluate", "--alpha", "0.6,0.8", "--c", "0.1", "--gamma", "2"])
    assert err == ""


def test_the_best_length_is_searched_among_carried_ones() -> None:
    found = specsim.optimize(MEASURED, 0.02)
    acceptance = MEASURED.over_gamma()
    gammas = np.arange(65)
    speedups = acceptance.tokens_per_call(64) / (1 + 0.02 * gammas)
    assert found.gamma == speedups.argmax()
    assert found.speedup == pytest.approx(speedups.max())
    (line,) = found.warnings
    assert f"gamma {found.gamma} is {found.gamma - 3} beyond what was measured" in line
    several = specsim.evaluate(MEASURED, 0.02, np.arange(6))
    np.testing.assert_allclose(several.tokens_per_call, acceptance.tokens_per_call(5))
    assert len(several.warnings) == 1


def test_a_load_is_planned_with_them(capsys: pytest.CaptureFixture[str]) -> None:
    words = [*SHAPES, *["--marginal", "0.8,0.6,0.5", "--context", "512"]]
    _, out, err = run(capsys, "optimize", *words, "--batch", "1,64", "--format", "json")
    # A draft model's, as it is one that drafts.
    acceptance = specsim.Marginal((0.8, 0.6, 0.5), heads=False).over_gamma()
    for row in rows(out):
        tokens = acceptance.tokens_per_call(row["gamma"])[-1]
        assert row["tokens_per_call"] == pytest.approx(tokens)
        assert f"gamma {row['gamma']} " in err
    _, same, _ = run(
        capsys, "optimize", *words, "--no-heads", "--batch", "1,64", "--format", "json"
    )
    assert rows(same) == rows(out)
    _, other, _ = run(capsys, "optimize", *words, "--heads", "--batch", "1,64", "--format", "json")
    assert rows(other) != rows(out)
    code, _, err = run(capsys, "export", "vllm", *words, "--model", "draft")
    assert code == 0
    assert "acceptance was measured at gamma 3" in err


def test_a_scheme_says_it_too() -> None:
    found = specsim.evaluate(MEASURED, 0.1, scheme=SpeculativeDecoding(gamma=5))
    wanted = specsim.evaluate(MEASURED, 0.1, 5)
    assert found.tokens_per_call == pytest.approx(wanted.tokens_per_call)
    assert found.warnings == wanted.warnings
    best = specsim.optimize(MEASURED, 0.1, scheme="speculative", candidates={"gamma": range(1, 9)})
    assert best.best.scheme.gamma == specsim.optimize(MEASURED, 0.1).gamma
    assert best.warnings == specsim.optimize(MEASURED, 0.1).warnings


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--alpha 0.8 --marginal 0.8", "--alpha and --marginal exclude each other"),
        ("--marginal 0.8 --conditional 0.8", "--marginal and --conditional exclude each other"),
        ("--alpha 0.8 --rounds 100", "--rounds needs --marginal or --conditional"),
        ("--alpha 0.8 --no-heads", "--heads needs --marginal or --conditional"),
        ("--marginal 0.8,0.9", "marginal must be rates that do not rise with the position"),
        ("--marginal 0.8 --rounds 0", "--rounds must be >= 1, got 0"),
    ],
)
def test_what_has_no_meaning_is_refused(
    capsys: pytest.CaptureFixture[str], words: str, message: str
) -> None:
    assert message in fail(capsys, "evaluate", *words.split(), "--c", "0.1", "--gamma", "2")
