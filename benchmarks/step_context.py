"""What a token more in the caches adds to a step of vLLM under load.

    python benchmarks/step_context.py [studies/measured/serving/profile.json]

The runs beside the profile (``specsim study serving --measure``) say when every request got its
chunks, so that steps without prompts are known with the requests and the tokens in their caches.
Least squares, with a level of its own for every batch and every run; the longest hundredth of the
steps is left out.  Beside it stands what the steps that were timed before say of a token, and how
many tokens a request had in the cache then and when it was served.
"""

from __future__ import annotations

import json
import sys
from itertools import accumulate
from pathlib import Path

import numpy as np

from specsim.checks import Floats
from specsim.counts.file import read_acceptance
from specsim.counts.streamed_costs import StreamedCosts
from specsim.counts.streams import Stream, single_steps
from studies.serving import settings
from studies.serving.files import LoadFiles
from studies.serving.page import SHIPPED
from studies.serving.settings import Setting, fixed

_BATCHES = (1, 4, 8, 14)


def main() -> None:
    files = LoadFiles(Path(sys.argv[1]) if len(sys.argv) > 1 else SHIPPED)
    every = [files.timed(number) for number in range(settings.PASSES)]
    before = [
        StreamedCosts(tuple(read_acceptance(path).streamed_steps()))
        for path in every
        if path.is_file()
    ]
    for gamma in (0, *settings.GAMMAS):
        runs = [
            files.run(Setting(fixed(gamma), rate), number)
            for number in range(settings.PASSES)
            for rate in settings.RATES
        ]
        found = [steps(path, gamma) for path in runs if path.is_file()]
        batch, context, seconds = np.concatenate(found).T
        run = np.repeat(np.arange(len(found)), [len(each) for each in found])
        kept = seconds < np.quantile(seconds, 0.99)
        levels = [batch == each for each in np.unique(batch)] + [run == at for at in np.unique(run)]
        columns = np.column_stack([*levels, context]).astype(float)
        token_s = np.linalg.lstsq(columns[kept], seconds[kept], rcond=None)[0][-1]
        timed = np.mean(
            [each.context for costs in before for each in costs.streamed if each.gamma == gamma]
        )
        slopes = [costs.laws[gamma].context_token_s for costs in before if costs.knows_caches]
        of_timed = f"{1e6 * np.mean(slopes):.2f}" if slopes else "not known"
        served = float(context.sum() / batch.sum())
        print(
            f"K = {gamma}: {len(seconds)} steps; tokens in the cache of a request: timed "
            f"{timed:.0f}, served {served:.0f}; a token takes {1e6 * token_s:.2f} us "
            f"({of_timed} by the timed steps), so that timed steps are longer by "
            + ", ".join(
                f"{(timed - served) * token_s * each / seconds[batch == each].mean():.1%} at batch "
                f"{each}"
                for each in _BATCHES
            )
        )


def steps(path: Path, gamma: int) -> Floats:
    """Requests, tokens in their caches, and seconds of every step without a prompt, (S, 3).

    The benchmark does not say how many tokens a chunk has: each after the first has as many as they
    have in the mean.
    """
    said = json.loads(path.read_text())
    names = ("input_lens", "output_lens", "start_times", "ttfts", "itls")
    streams, per_chunk = [], []
    for prompt, output, sent_s, ttft_s, itl_s in zip(*(said[name] for name in names), strict=True):
        chunks = tuple(accumulate(itl_s, initial=sent_s + ttft_s))
        streams.append(Stream(prompt, sent_s, chunks, (1,) * len(chunks)))
        per_chunk.append((output - 1) / max(len(itl_s), 1))
    rows = []
    for step in single_steps(streams, gamma):
        if step.new:
            continue
        tokens = 0.0
        for number, chunk in step.ended.chunks.items():
            prompt = streams[number].prompt_tokens
            # One of the first chunk, and those of the others before this one.
            tokens += prompt + 1 + (chunk.context - prompt - 1) * per_chunk[number]
        rows.append((len(step.contexts), tokens, step.seconds))
    return np.array(rows)


if __name__ == "__main__":
    main()
