"""What every setting spends, in runs of plain decoding, from decoding that was timed.

What a run takes depends on what ran before it and how often: a small draft is a third faster in its
tenth run on end than in the first behind the target, which leaves nothing of it in the processor's
caches, and behind a model of middle size it lies in between.  So no run is timed in a loop of its
own: requests are decoded with every setting, side by side with plain decoding, and each run counts
in plain runs of the same request.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from calibrate.decode.engine import Decoded, Runs
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
    usual : by what share requests differ, where a model ran in one alone, which does not tell it
    """

    runs: Mapping[str, Repeats]
    host: Repeats
    usual: float

    def spent(self, requests: Sequence[RunCounts], draws: PassDraws | None = None) -> Floats:
        """Of requests with these runs, the host's share included; (R,), or (R, D) of draws."""
        prices = {model: self._price(each, draws) for model, each in self.runs.items()}
        host = 1 + self.host_share(draws)
        nothing = np.zeros_like(host)
        return np.array(
            [
                host
                * sum((n * prices.get(model, 1.0) for model, n in each.counts.items()), nothing)
                for each in requests
            ]
        )

    def host_share(self, draws: PassDraws | None = None) -> Floats:
        """() or (D,)."""
        off = 0.0 if draws is None else self.host.drawn(draws)
        return np.maximum(self.host.mean + off, 0.0)

    def _price(self, run: Repeats, draws: PassDraws | None) -> Floats:
        """The mean, () or with what the requests leave open of it (D,)."""
        if draws is None:
            return np.asarray(run.mean)
        if run.values.size == 1:
            return np.asarray(run.mean * (1 + self.usual * draws.alone(int(run.passes[0]))))
        return np.asarray(run.mean + run.drawn(draws))


def setting_costs(priced: Interleaved) -> dict[Hashable, SettingCost]:
    """Of every setting and of plain decoding; requests are what is drawn again."""
    plain_s = [each.target.seconds / each.target.count for each in priced.decoded[PLAIN]]
    prices: dict[Hashable, dict[str, Repeats]] = {}
    for name, decoded in priced.decoded.items():
        runs = {TARGET: [each.target for each in decoded]}
        runs |= {model: [each.drafts[model] for each in decoded] for model in decoded[0].drafts}
        prices[name] = {
            model: _over_plain(found, plain_s)
            for model, found in runs.items()
            if any(each.count for each in found)
        }
    # A run of plain decoding is one by definition, in every request.
    settings = [by_model for name, by_model in prices.items() if name != PLAIN]
    usual = _usual([each for by_model in settings for each in by_model.values()])
    return {
        name: SettingCost(prices[name], _host(decoded, plain_s), usual)
        for name, decoded in priced.decoded.items()
    }


def _over_plain(found: Sequence[Runs], plain_s: Sequence[float]) -> Repeats:
    """A run over a plain one, by request, of those in which the model ran at all."""
    ran = [number for number, each in enumerate(found) if each.count]
    counts = [found[number].count for number in ran]
    means = [found[number].seconds / found[number].count / plain_s[number] for number in ran]
    return Repeats.of(means, ran, counts)


def _host(decoded: Sequence[Decoded], plain_s: Sequence[float]) -> Repeats:
    """Shares of the runs' time, which weigh as it does: total over total.

    None is held near the others: a request that the target writes has another share than one that
    a draft writes, and there may be one of them alone.
    """
    run_s = np.array([each.seconds - each.overhead_s for each in decoded])
    shares = np.array([each.overhead_s for each in decoded]) / run_s
    return Repeats(shares, np.arange(len(decoded)), run_s / np.array(plain_s))


def _usual(prices: Iterable[Repeats]) -> float:
    """Root mean square over what the requests of each differ by, as shares of its mean."""
    known = [each.over_mean.values.var(ddof=1) for each in prices if each.values.size > 1]
    return float(np.sqrt(np.mean(known))) if known else 0.0
