"""How far the steps of a server under load scatter together.

    python -m benchmarks.step_scatter studies/measured/serving/profile.json

Of every run of the serving study with one draft length: steps without a prompt, each over the mean
of those in which as many decoded.  Prints, by load and draft length, how far one scatters, how much
of that it has in common with the one so many steps later (the autocorrelation), and how far means
of 50 steps on end scatter, beside what they would if no step knew of another, as the simulator has
it.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from specsim.checks import Floats
from specsim.counts.streams import single_steps
from studies.serving import settings
from studies.serving.bench import streams_of
from studies.serving.files import LoadFiles
from studies.serving.steps import tells_steps

_LAGS = (1, 10, 50)
_WINDOW = 50
# Fewer steps of a batch do not tell their mean.
_FEWEST = 10


def in_order(said: dict[str, Any], gamma: int) -> Floats:
    """Steps of a run over the mean of their batch, less one, in the order of time; shape (S,), nan
    where a step had a prompt or was not seen.
    """
    alike: dict[int, list[tuple[int, float]]] = defaultdict(list)
    last = 0
    for step in single_steps(streams_of(said), gamma):
        last = step.number
        if not step.new:
            alike[len(step.contexts)].append((step.number - 1, step.seconds))
    found = np.full(last, np.nan)
    for steps in alike.values():
        if len(steps) >= _FEWEST:
            places, seconds = map(np.array, zip(*steps, strict=True))
            found[places] = seconds / seconds.mean() - 1
    return found


def figures(runs: Sequence[Floats]) -> list[float]:
    """Spread of a step, what it has in common with later ones, spread of means of a window, and of
    as many that know nothing of each other; root mean squares over the runs.
    """
    variance = np.mean([np.nanvar(each) for each in runs])
    common = [np.mean([np.nanmean(each[:-lag] * each[lag:]) for each in runs]) for lag in _LAGS]
    means, alone = [], []
    for each in runs:
        windows = each[: each.size // _WINDOW * _WINDOW].reshape(-1, _WINDOW)
        seen = (~np.isnan(windows)).sum(axis=1)
        kept = seen > _WINDOW // 2
        # A load of one window says nothing of how far they scatter.
        if kept.sum() > 1:
            means.append(np.nanmean(windows[kept], axis=1).var(ddof=1))
            alone.append((np.nanvar(each) / seen[kept]).mean())
    return [
        float(np.sqrt(variance)),
        *(float(each / variance) for each in common),
        *(float(np.sqrt(np.mean(each))) if each else np.nan for each in (means, alone)),
    ]


def main() -> None:
    files = LoadFiles(Path(sys.argv[1]))
    found: dict[tuple[str, str], list[Floats]] = defaultdict(list)
    for setting in settings.SETTINGS:
        if tells_steps(setting.drafting):
            for number in files.passes(setting):
                said = json.loads(files.run(setting, number).read_text())
                steps = in_order(said, setting.drafting.policy.gamma_max)
                found[setting.rate, setting.drafting.name].append(steps)
    lags = "".join(f"{f'+{lag}':>7}" for lag in _LAGS)
    print(f"{'load':11}{'drafts':8}{'steps':>7}{'one':>7}{lags}{f'of {_WINDOW}':>8}{'alone':>8}")
    for (rate, name), runs in sorted(found.items()):
        one, *common, means, alone = figures(runs)
        steps = sum(int((~np.isnan(each)).sum()) for each in runs)
        shares = "".join(f"{each:7.2f}" for each in common)
        print(f"{rate:11}{name:8}{steps:7}{one:7.3f}{shares}{means:8.3f}{alone:8.3f}", flush=True)


if __name__ == "__main__":
    main()
