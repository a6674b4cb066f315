"""What timing and checking an engine have in common: requests of a profile, and files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from specsim.api.models import Models
from specsim.api.validation import EngineCheck
from specsim.checks import InvalidArgumentError, UnsupportedError
from specsim.optimizers.workload import Workload
from specsim.profiles import Profile

if TYPE_CHECKING:
    from calibrate.engine.asked import Asked
    from calibrate.models.load import Pair


class EngineQuestion(Protocol):
    """What both are asked."""

    @property
    def engine(self) -> Literal["vllm"]: ...
    @property
    def api(self) -> Literal["serve", "generate"]: ...
    @property
    def temperature(self) -> float: ...
    @property
    def drafts(self) -> Literal["greedy", "probabilistic"]: ...
    @property
    def prompts(self) -> Path | None: ...
    @property
    def requests(self) -> int: ...
    @property
    def engine_bin(self) -> Path | None: ...
    @property
    def engine_args(self) -> tuple[str, ...]: ...


def engine_check(question: EngineQuestion) -> EngineCheck:
    """How the engines are started."""
    return EngineCheck(
        engine=question.engine,
        api=question.api,
        engine_bin=question.engine_bin,
        drafts=question.drafts,
        engine_args=question.engine_args,
    )


def engine_file(profile: Path, question: EngineQuestion, what: str = "") -> Path:
    """Where the step times of an engine, or ``what``, are kept beside a profile."""
    name: str = question.engine
    if question.api != "serve":
        name += f"-{question.api}"
    if question.temperature:
        name += f"-t{question.temperature:g}"
    return profile.with_name(f"{profile.stem}.{name}{what}.json")


def engine_context(asked: Asked, profile: Profile, question: EngineQuestion) -> int:
    """Tokens of a text that engines are started for, as many as any of the requests at least."""
    context = engine_check(question).context(min(profile.target.context, profile.draft.context))
    requests = zip(asked.prompts, asked.tokens, strict=True)
    longest = max(len(prompt) + tokens for prompt, tokens in requests)
    if longest > context:
        raise InvalidArgumentError(
            f"--max-model-len must be >= {longest}, the longest request of the profile, got "
            f"{context}"
        )
    return context


def asked_of(
    profile: Profile, path: Path, question: EngineQuestion, trust_remote_code: bool
) -> tuple[Asked, Pair]:
    """All requests of a profile, shorter by its longest draft, under the engine's law of
    acceptance; and the models.
    """
    from calibrate.engine.asked import Asked
    from calibrate.engine.rates import LAWS
    from calibrate.models.load import load_measured_pair
    from calibrate.validate.speedups import CheckedPrompts

    law = LAWS[question.drafts]
    (workload, *_) = Workload.all_of(profile, path, question.temperature, law)
    sampling = workload.measured.sampling
    filtered = sampling.top_k is not None or sampling.top_p is not None
    if law == "ratio-test" and sampling.temperature and filtered:
        raise UnsupportedError(
            "probabilistic drafts of vLLM are drawn without top_k and top_p, and those of this "
            "profile with them: give drafts greedy, or calibrate without top_k and top_p"
        )
    device, dtype = Models.of(profile).place()
    pair = load_measured_pair(profile, device, dtype, trust_remote_code)
    pair.target.require_causal("an engine")
    tokenizer = pair.target.tokenizer
    every = workload.measured.requests
    checked = CheckedPrompts.find(workload, True, question.prompts, tokenizer, every)
    return Asked.of(checked, profile.gamma_max), pair
