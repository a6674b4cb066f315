"""How long an engine took: its steps by draft length and batch, its reading of prompts, and its
steps under load.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from specsim.checks import InvalidArgumentError


@dataclass(frozen=True)
class StepTime:
    """Seconds of one decoding step of a batch: its drafts, its verification and all else.

    gamma : draft tokens of a step; 0 is a plain step; None where the source does not tell
    batch : requests that shared it
    seconds : of a step
    steps : how many were timed; None where the source does not tell
    draft_s : of which the drafts took so much, where the source tells
    drafter_loaded : whether a plain step kept a drafter in memory and in step; None where the
        source does not tell
    context : tokens in the cache of each request, where the source tells
    repeat : the repeat of all settings in which it was timed, counted from 0: steps of one repeat
        were timed beside each other, so that their ratios are free of drift; None of a source that
        was timed once
    first_s : seconds until a request of the batch had its first token, where it was timed
    """

    gamma: int | None
    batch: float
    seconds: float
    steps: float | None = None
    draft_s: float | None = None
    drafter_loaded: bool | None = None
    context: float | None = None
    repeat: int | None = None
    first_s: float | None = None

    def __post_init__(self) -> None:
        for name in ("batch", "seconds"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise InvalidArgumentError(f"{name} of a step must be a number > 0, got {value}")


@dataclass(frozen=True)
class PromptTime:
    """Seconds until the first token behind a prompt that was alone with the engine.

    gamma : draft tokens of a step; 0: there is no drafter
    tokens : of the prompt
    seconds : of the engine, from scheduling the prompt to its first token; the drafter reads it,
        too, and makes its first drafts
    answer_s : of the client, from sending the prompt to the answer of one token
    repeat : the repeat of all settings in which it was timed, counted from 0
    """

    gamma: int
    tokens: int
    seconds: float
    answer_s: float
    repeat: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.seconds <= self.answer_s < math.inf:
            raise InvalidArgumentError(
                f"seconds of a prompt must be in (0, answer_s = {self.answer_s}], got "
                f"{self.seconds}"
            )


@dataclass(frozen=True)
class StreamedStep:
    """A step of a server under load, or the mean of some alike.

    decodes : requests that went on, one at least
    prompts, prompt_tokens : requests whose prompt was read beside them, and its tokens
    seconds : of a step
    steps : how many
    decode_context : tokens in the cache of those that went on, all together, in the mean; 0 where
        nobody tells
    variance_s2 : of the seconds of single steps about their mean, so 0 of one alone; None where
        nobody tells
    arrivals : requests that were sent while it ran; None where nobody tells
    """

    decodes: int
    prompts: int
    prompt_tokens: int
    seconds: float
    steps: int = 1
    decode_context: float = 0.0
    variance_s2: float | None = None
    arrivals: int | None = None

    def __post_init__(self) -> None:
        if self.decodes < 1 or self.steps < 1:
            raise InvalidArgumentError(
                f"decodes and steps of a streamed step must be >= 1, got {self.decodes} and "
                f"{self.steps}"
            )
        if not 0 <= self.prompts <= self.prompt_tokens or bool(self.prompts) != bool(
            self.prompt_tokens
        ):
            raise InvalidArgumentError(
                f"prompt_tokens must be >= prompts = {self.prompts}, and 0 where that is, got "
                f"{self.prompt_tokens}"
            )
        if not 0 < self.seconds < math.inf:
            raise InvalidArgumentError(
                f"seconds of a streamed step must be a number > 0, got {self.seconds}"
            )
        if not 0 <= self.decode_context < math.inf:
            raise InvalidArgumentError(f"decode_context must be >= 0, got {self.decode_context}")
        if self.variance_s2 is not None and not 0 <= self.variance_s2 < math.inf:
            raise InvalidArgumentError(f"variance_s2 must be >= 0, got {self.variance_s2}")
        if self.arrivals is not None and self.arrivals < 0:
            raise InvalidArgumentError(f"arrivals must be >= 0, got {self.arrivals}")

    @property
    def requests(self) -> int:
        """That get a token, and drafts, in this step."""
        return self.decodes + self.prompts


@dataclass(frozen=True)
class FrontendTime:
    """Seconds of a request outside of all steps (sending, tokenizer, answer).

    seconds : in the mean, by chance < 0
    requests : how many
    decodes : other requests that went on in the step of its first token; None where nobody tells
    prompts : how many had their first token in that step, itself among them; None where nobody
        tells
    variance_s2 : of single requests about the mean, without what the moment of a step that each
        was sent in makes of it, by chance < 0; None where nobody tells
    """

    seconds: float
    requests: int
    decodes: int | None = None
    prompts: int | None = None
    variance_s2: float | None = None

    def __post_init__(self) -> None:
        if not math.isfinite(self.seconds):
            raise InvalidArgumentError(
                f"seconds of a frontend must be a number, got {self.seconds}"
            )
        if self.requests < 1:
            raise InvalidArgumentError(f"requests of a frontend must be >= 1, got {self.requests}")
        if self.decodes is not None and self.decodes < 0:
            raise InvalidArgumentError(f"decodes of a frontend must be >= 0, got {self.decodes}")
        if self.prompts is not None and self.prompts < 1:
            raise InvalidArgumentError(f"prompts of a frontend must be >= 1, got {self.prompts}")
        if self.variance_s2 is not None and not math.isfinite(self.variance_s2):
            raise InvalidArgumentError(
                f"variance_s2 of a frontend must be a number, got {self.variance_s2}"
            )


@dataclass(frozen=True)
class StreamedSteps:
    """What the clients of a server under load saw of its steps.

    gamma : draft tokens of a step; 0: there is no drafter
    steps : that could be told apart
    frontends : what requests spent outside of all steps, by how many decoded beside them, and
        how many had their first token with them
    context : tokens in the cache of a request that decodes, in the mean; 0 where there is none
    repeat : the repeat of all settings in which it was timed, counted from 0
    """

    gamma: int
    steps: tuple[StreamedStep, ...]
    frontends: tuple[FrontendTime, ...] = ()
    context: float = 0.0
    repeat: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.context < math.inf:
            raise InvalidArgumentError(f"context must be >= 0, got {self.context}")
