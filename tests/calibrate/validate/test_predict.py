"""What was predicted is the same when it is read back after a kill."""

from __future__ import annotations

import json

from calibrate.validate.predict import Predicted, Prediction, as_json, from_json
from calibrate.validate.quality import Quality
from specsim.laws import TARGET
from specsim.predict.replay.blocks import Expected
from specsim.predict.replay.rates import DEFERRAL, Tried
from specsim.predict.replay.run_counts import RunCounts
from specsim.schemes import PlainDecoding


def test_a_prediction_is_read_back_as_it_was() -> None:
    runs = RunCounts()
    runs.add(TARGET, 3.1)
    runs.add("draft", 1 / 3)
    request = Prediction(
        Expected(9, 3.1, runs),
        (
            (("draft", TARGET), Tried(0.1, 3)),
            ((TARGET, "draft", 2), Tried(1.0, 2)),
            (DEFERRAL, Tried(0, 1)),
        ),
    )
    for quality in (None, Quality(None, 0.5), Quality(1.25, 0.5)):
        before = Predicted(PlainDecoding(), [request] * 2, quality)
        after = from_json(before.scheme, json.loads(json.dumps(as_json(before))))
        assert after.quality == before.quality
        assert after.rates == before.rates
        assert [*after.tokens] == [*before.tokens]
        for one, other in zip(after.expected, before.expected, strict=True):
            assert (one.tokens, one.calls) == (other.tokens, other.calls)
            assert one.runs.counts == other.runs.counts
