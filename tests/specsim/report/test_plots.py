"""What a figure of speedups shows: panels, intervals and the recommended draft length."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import specsim
from specsim.report.explain_plots import parts_per_token
from specsim.report.plots import save, speedup_by_gamma

TIMED = Path(__file__).parents[3] / "studies" / "measured" / "serving" / "profile.vllm-0.json"


def row(gamma: int, **more: Any) -> dict[str, Any]:
    speedup = 1 + 0.1 * gamma - 0.02 * gamma**2
    return {
        "gamma": gamma,
        "predicted_speedup": speedup,
        "predicted_low": speedup - 0.1,
        "predicted_high": speedup + 0.2,
        "measured_speedup": speedup + 0.05,
        "measured_low": speedup - 0.05,
        "measured_high": speedup + 0.15,
        **more,
    }


def blind(chosen: int) -> list[dict[str, Any]]:
    """As ``validate --blind`` has them, at two temperatures."""
    return [
        row(
            gamma,
            temperature=temperature,
            prompts="calibration",
            formula_speedup=1.5,
            chosen=gamma == chosen,
        )
        for temperature in (0.0, 1.0)
        for gamma in (3, 1, 2)
    ]


def line(axis: Any, label: str) -> Any:
    (found,) = [each for each in axis.get_lines() if each.get_label() == label]
    return found


def test_a_panel_for_each_temperature_with_a_ring_around_the_recommended_one(
    tmp_path: Path,
) -> None:
    figure = speedup_by_gamma(blind(chosen=2), "predicted before, and measured")
    assert [axis.get_title() for axis in figure.axes] == ["temperature 0", "temperature 1"]
    for axis in figure.axes:
        predicted = line(axis, "predicted, 95 % interval")
        assert predicted.get_xdata().tolist() == [1, 2, 3]
        assert predicted.get_ydata() == pytest.approx([1.08, 1.12, 1.12])
        ring = line(axis, "recommended")
        assert (ring.get_xdata(), ring.get_ydata()) == ([2], pytest.approx([1.12]))
        (band,) = axis.collections[:1]
        vertices = band.get_paths()[0].vertices
        assert {*np.round(vertices[:, 1], 6)} >= {0.98, 1.28, 1.02, 1.32}
        assert len(axis.containers) == 1, "error bars of what was measured"
    save(figure, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_plain_decoding_is_recommended_at_the_line() -> None:
    (axis, _) = speedup_by_gamma(blind(chosen=0), "").axes
    ring = line(axis, "recommended")
    assert (ring.get_xdata(), ring.get_ydata()) == ([0], [1.0])


def test_panels_of_other_checks() -> None:
    engine = [row(gamma, batch=batch) for batch in (16, 1) for gamma in (1, 2)]
    figure = speedup_by_gamma(engine, "")
    assert [axis.get_title() for axis in figure.axes] == ["batch 1", "batch 16"]
    labels = {each.get_label() for each in figure.axes[0].get_lines()}
    assert not labels & {"recommended", "papers' formula (alpha, c)"}
    both = [{**each, "prompts": prompts} for each in blind(1)[:3] for prompts in ("unseen", "own")]
    titles = [axis.get_title() for axis in speedup_by_gamma(both, "").axes]
    assert titles == ["temperature 0, own prompts", "temperature 0, unseen prompts"]


def test_parts_of_a_step_are_named_as_what_they_are() -> None:
    """The target's runs have one name in both bars, and a step that was timed whole is none."""
    deployed = specsim.deploy("llama-3.1-8b", "H100-SXM", "eagle3")
    for found, names in (
        (specsim.explain(gamma=2, profile=TIMED), ["whole step"]),
        (
            specsim.explain(0.7, gamma=2, deployment=deployed),
            ["first draft run", "later draft runs", "target run"],
        ),
    ):
        (legend,) = parts_per_token(found).legends
        assert [each.get_text() for each in legend.get_texts()] == names
