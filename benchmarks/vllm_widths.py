"""What a prompt takes vLLM on a CPU whose length it has not read before, or not for long.

    make engine
    python benchmarks/vllm_widths.py [--gamma 4] [--longest 208] [--rounds 4]

Two servers of the embedded pair, one with the room that oneDNN has by itself for what it prepares
for each width (1,024 pieces), one with the room that specsim's servers have, read prompts of 1, 2,
... tokens, each alone, round after round: what is prepared in the first round is all that is needed
later, and is gone by then where there is no room for it.  Printed is the mean time of a prompt in
each round, by the server's own counter, and how much longer the rounds behind the first take
without room.  It takes a minute.
"""

from __future__ import annotations

import argparse
import os
from unittest.mock import patch

import numpy as np

from calibrate.engine.client import Client, counter
from calibrate.engine.server import Launch, find_program, started
from calibrate.models.load import resolve
from specsim.profiles import SamplingSetting
from studies.serving import settings

_CAPACITY = "ONEDNN_PRIMITIVE_CACHE_CAPACITY"
_ROOMS = {"1,024 pieces": {_CAPACITY: "1024"}, "as specsim sets it": {}}
_PREFILL_S = "vllm:request_prefill_time_seconds_sum"


def round_s(client: Client, longest: int) -> float:
    """Seconds of a prompt, in the mean over one of each length."""
    prompts = [[1] * length for length in range(1, longest + 1)]
    done = client.complete(prompts, [1] * longest, SamplingSetting(0.0), 1)
    before, after = (counter(each, _PREFILL_S, client.where) for each in (done.before, done.after))
    return (after - before) / longest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gamma", type=int, default=4)
    parser.add_argument("--longest", type=int, default=208)
    parser.add_argument("--rounds", type=int, default=4)
    asked = parser.parse_args()
    drafting = settings.fixed(asked.gamma)
    launch = Launch(
        program=find_program(None),
        target=str(resolve(settings.TARGET)),
        speculative=drafting.speculative(str(resolve(settings.DRAFT))),
        dtype="float32",
        context=settings.CONTEXT,
        more=settings.ENGINE_ARGS,
    )
    os.environ.pop(_CAPACITY, None)
    later = {}
    for name, room in _ROOMS.items():
        with patch.dict(os.environ, room), started(launch) as client:
            seconds = [round_s(client, asked.longest) for _ in range(asked.rounds)]
        print(f"{name:20}" + "".join(f"{1e3 * each:8.2f} ms" for each in seconds))
        later[name] = float(np.mean(seconds[1:]))
    without, with_room = later.values()
    print(f"behind the first round {without / with_room - 1:+.1%} without room")


if __name__ == "__main__":
    main()
