"""Claims of the papers against rows of predicted and measured speedups."""

from __future__ import annotations

from typing import Any

import pytest

from calibrate.models.sampling import Sampling
from calibrate.validate.catalogue import settings
from specsim.schemes import HorizontalCascade, Scheme, SpeculativeDecoding
from studies.common.orderings import ORDERINGS, ratios
from tests.support.pages import decoding

MIDDLE = SpeculativeDecoding(4, "middle")


def row(scheme: Scheme, predicted: float, measured: float) -> dict[str, Any]:
    quality = {"accuracy": 0.5, "log_loss": None}
    given = {"temperature": 0.0, "predicted_speedup": predicted, **quality}
    return decoding(scheme, 1.0, measured, **given)


@pytest.mark.parametrize(
    ("predicted", "measured", "verdict"),
    [
        (1.2, 1.1, "holds"),
        (0.9, 0.8, "fails"),
        (1.1, 0.9, "open"),
        (0.9, 1.1, "open"),
        (1.2, 1.02, "open"),
    ],
)
def test_a_claim_needs_prediction_and_measurement(
    predicted: float, measured: float, verdict: str
) -> None:
    (found,) = ratios(
        [
            row(HorizontalCascade(("middle", "max-gram"), (3, 5)), predicted * 2, measured * 2),
            row(MIDDLE, 2.0, 2.0),
        ]
    )
    assert found["verdict"] == verdict
    assert found["predicted_ratio"] == pytest.approx(predicted)
    assert found["measured_ratio"] == pytest.approx(measured)
    assert (found["accuracy"], found["log_loss"]) == ("0.500 / 0.500", "- / -")


def test_the_better_of_several_is_chosen_by_prediction() -> None:
    # The one that turned out faster was not the one to bet on.
    rows = [
        row(HorizontalCascade(("middle", "draft"), (3, 3)), 1.5, 1.5),
        row(SpeculativeDecoding(2), 1.4, 1.0),
        row(SpeculativeDecoding(4), 1.3, 1.6),
        row(SpeculativeDecoding(8), 1.0, 1.0),
        row(MIDDLE, 1.2, 1.2),
    ]
    (found,) = (each for each in ratios(rows) if "better of its drafters" in each["claim"])
    assert found["slower"] == "draft 2"


def test_every_claim_is_about_listed_settings() -> None:
    everything = [
        row(each, 1.0 + place / 100, 1.0) for place, each in enumerate(settings(Sampling(0.0)))
    ]
    assert len(ratios(everything)) == len(ORDERINGS)
