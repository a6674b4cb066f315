"""Steps of every width, done before a server is timed.

A width, the tokens that a step runs at once, that a server has not had before takes it longer:
libraries prepare then what they compute it by (``benchmarks/vllm_widths.py``).  A server that is
deployed has had them all.
"""

from __future__ import annotations

import time

from calibrate.engine.client import Client
from calibrate.engine.server import Launch
from specsim.profiles import SamplingSetting

# Seconds at the most: where steps take so long that this is not enough, what is prepared for them
# is taken to be little.
_LONGEST_S = 20.0
# Prompts that are sent one after another before the clock is read.
_SOME = 16
# Any token of any model.
_TOKEN = 1


def warm(client: Client, launch: Launch, prompt_tokens: int) -> None:
    """Have a server read prompts of 1, 2, 3, ... tokens, each alone, as long as that does not take
    too long: up to as many as a step has that reads one while all others decode.

    launch : how it was started
    prompt_tokens : of the longest prompt
    """
    gamma = (launch.speculative or {}).get("num_speculative_tokens", 0)
    # No text is longer than the context.
    widest = min(launch.requests * (gamma + 1) + prompt_tokens, launch.context - 1 - gamma)
    end_s = time.monotonic() + _LONGEST_S
    for shortest in range(1, widest + 1, _SOME):
        if time.monotonic() > end_s:
            return
        lengths = range(shortest, min(shortest + _SOME, widest + 1))
        prompts = [[_TOKEN] * length for length in lengths]
        client.complete(prompts, [1] * len(prompts), SamplingSetting(0.0), 1)
