"""What every setting spends, in runs of plain decoding, from decoding that was timed.

What a run takes depends on what ran before it and how often: a small draft is a third faster in its
tenth run on end than in the first behind the target, which leaves nothing of it in the processor's
caches, and behind a model of middle size it lies in between.  So no run is timed in a loop of its
own: requests are decoded with every setting, side by side with plain decoding, and each run counts
in plain runs of the same request.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from calibrate.decode.engine import Runs
from calibrate.validate.interleave import PLAIN, Interleaved
from specsim.checks import Floats
from specsim.hardware.repeats import PassDraws, Repeats
from specsim.laws import TARGET
from specsim.predict.replay.run_counts import RunCounts


@dataclass(frozen=True, eq=False)
class SettingCost:
    """What a setting spends, in runs of plain decoding.

    runs : what a run of each model takes, by request; one that never ran while others were timed
        takes as long as a plain run
    host : host time over that of the runs, by request
    """

    runs: Mapping[str, Repeats]
    host: Repeats

    def total(self, runs: RunCounts, draws: PassDraws | None = None) -> Floats:
        """Of a request with these runs, the host's share included; () or (D,)."""
        total = np.zeros(())
        for model, count in runs.counts.items():
            timed = self.runs.get(model)
            total = total + count * (1.0 if timed is None else _drawn(timed, draws))
        return np.asarray(total * (1 + self.host_share(draws)))

    def host_share(self, draws: PassDraws | None = None) -> Floats:
        """() or (D,)."""
        return np.maximum(_drawn(self.host, draws), 0.0)


def _drawn(repeats: Repeats, draws: PassDraws | None) -> Floats:
    """The mean, () or with what the repeats leave open of it (D,)."""
    return np.asarray(repeats.mean + (0.0 if draws is None else repeats.drawn(draws)))


def setting_costs(timed: Interleaved) -> dict[Hashable, SettingCost]:
    """Of every setting and of plain decoding; requests are what is drawn again."""
    plain_s = [each.target.seconds / each.target.count for each in timed.decoded[PLAIN]]
    costs: dict[Hashable, SettingCost] = {}
    for name, decoded in timed.decoded.items():
        runs = {TARGET: [each.target for each in decoded]}
        runs |= {model: [each.drafts[model] for each in decoded] for model in decoded[0].drafts}
        shares = [each.overhead_s / (each.seconds - each.overhead_s) for each in decoded]
        costs[name] = SettingCost(
            {
                model: _over_plain(found, plain_s)
                for model, found in runs.items()
                if any(each.count for each in found)
            },
            Repeats.of(shares, range(len(shares))),
        )
    return costs


def _over_plain(found: Sequence[Runs], plain_s: Sequence[float]) -> Repeats:
    """A run over a plain one, by request, of those in which the model ran at all."""
    ran = [number for number, each in enumerate(found) if each.count]
    counts = [found[number].count for number in ran]
    means = [found[number].seconds / found[number].count / plain_s[number] for number in ran]
    return Repeats.of(means, ran, counts)
