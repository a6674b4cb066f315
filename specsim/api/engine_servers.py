"""``specsim.engine_servers``: engines that run while they are timed more than once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from specsim.api.models import need_torch
from specsim.profiles import read_profile

if TYPE_CHECKING:
    from calibrate.engine.client import Client
    from specsim.api.engine_timing import EngineTiming

# Clients of running engines by draft length, 0 among them.
EngineServers: TypeAlias = "Mapping[int, Client]"


@contextmanager
def engine_servers(
    profile: str | PathLike[str], timing: EngineTiming, *, seed: int = 0
) -> Iterator[EngineServers]:
    """The engines that ``calibrate_engine`` times with these arguments, running meanwhile.

    Starting them takes a minute, which who times again and again saves.

        timing = specsim.EngineTiming(gamma=(1, 3, 5))
        with specsim.engine_servers("profile.json", timing) as servers:
            for number in range(3):
                out = f"timed-{number}.json"
                specsim.calibrate_engine("profile.json", out, timing, servers=servers)

    seed : of the engines' random numbers
    """
    need_torch()
    content = read_profile(Path(profile))
    content.require_draft_model("the timing of an engine")
    from calibrate.engine.servers import Servers

    gammas = (0, *timing.gammas(content.gamma_max))
    servers = Servers.of(content, timing.check, gammas, max(timing.batch), seed)
    with servers.clients() as clients:
        yield clients
