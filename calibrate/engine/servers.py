"""Engines with a profile's models, one for each draft length."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from calibrate.engine.client import Client, EngineClient, EngineError, counted
from calibrate.engine.server import Launch, all_started, find_program, started
from calibrate.engine.warming import warm
from calibrate.models.load import resolve
from specsim.api.validation import EngineCheck
from specsim.profiles import Profile


@dataclass(frozen=True)
class Servers:
    """Where the engine is asked: one server for each draft length.

    gammas : draft lengths; 0 is plain decoding
    launches : how the server of each is started; none where the one at ``url`` is asked
    prompt_tokens : most tokens of a prompt that they are asked
    """

    gammas: tuple[int, ...]
    launches: Mapping[int, Launch]
    url: str | None = None
    prompt_tokens: int = 0

    @staticmethod
    def of(
        profile: Profile,
        check: EngineCheck,
        gammas: Sequence[int],
        requests: int = Launch.requests,
        seed: int = 0,
    ) -> Servers:
        """Of a profile's models at these draft lengths, or the one that is there already.

        requests : most requests that a server decodes together
        seed : of the servers' random numbers
        """
        if check.url is not None:
            return Servers((_gamma_of(EngineClient(check.url), check),), {}, check.url)
        program, draft = find_program(check.engine_bin), str(resolve(profile.draft.name))
        launches = {
            gamma: Launch(
                program=program,
                target=str(resolve(profile.target.name)),
                speculative=speculative_config(check, gamma, draft) if gamma else None,
                dtype=profile.software.dtype,
                context=check.context(min(profile.target.context, profile.draft.context)),
                requests=max(requests, Launch.requests),
                api=check.api,
                seed=seed,
                more=check.engine_args,
            )
            for gamma in gammas
        }
        longest = max((each.prompt_tokens for each in profile.acceptance), default=0)
        # Under load prompts are up to twice as long as in the mean (``streams``).
        return Servers(tuple(gammas), launches, prompt_tokens=2 * longest)

    @contextmanager
    def client(self, gamma: int) -> Iterator[Client]:
        """The server of a draft length, running meanwhile."""
        if self.url is not None:
            yield EngineClient(self.url)
        else:
            with started(self.launches[gamma]) as client:
                yield client

    @contextmanager
    def clients(self) -> Iterator[dict[int, Client]]:
        """The servers of all draft lengths, warm, running side by side meanwhile: idle ones
        rest.
        """
        if self.url is not None:
            yield {gamma: EngineClient(self.url) for gamma in self.gammas}
        else:
            with all_started([self.launches[gamma] for gamma in self.gammas]) as running:
                clients = dict(zip(self.gammas, running, strict=True))
                for gamma, client in clients.items():
                    warm(client, self.launches[gamma], self.prompt_tokens)
                yield clients


def speculative_config(check: EngineCheck, gamma: int, draft: str) -> dict[str, Any]:
    """What vLLM's ``--speculative-config`` is given."""
    if check.method == "ngram":
        longest, shortest = check.lookups
        return {
            "method": "ngram",
            "num_speculative_tokens": gamma,
            "prompt_lookup_min": shortest,
            "prompt_lookup_max": longest,
        }
    return {
        "method": "draft_model",
        "model": draft,
        "num_speculative_tokens": gamma,
        "draft_sample_method": check.drafts,
    }


def _gamma_of(client: EngineClient, check: EngineCheck) -> int:
    """The draft length of a running server: its counters have so many positions."""
    metrics = client.metrics()
    if "vllm:" in metrics and "vllm:spec_decode" not in metrics:
        raise EngineError(f"{client.url} drafts nothing: start it with --speculative-config")
    gamma = len(counted(metrics, metrics, client.url).reached)
    if check.gamma is not None and check.gamma != (gamma,):
        asked = ", ".join(map(str, check.gamma))
        raise EngineError(f"{client.url} drafts {gamma} tokens, gamma must be that, got {asked}")
    return gamma
