"""Which models are run and where, and what is measured of them."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specsim.acceptance import ACCEPTANCE_LAWS, AcceptanceLaw
from specsim.checks import (
    InvalidArgumentError,
    SpecsimError,
    check_choice,
    integer,
    number,
    numbers,
)

if TYPE_CHECKING:
    from calibrate.models.load import Pair
    from calibrate.models.place import Place
    from specsim.profiles import Dtype, Mode, Profile

# More than any machine has; torch takes what an int of C holds.
_MOST_THREADS = 4096
# Minutes in a week, after which a run that was killed is not taken up again.
_LONGEST_SPREAD = 7.0 * 24 * 60


@dataclass(frozen=True)
class Models:
    """A target and its draft, and where they run.

    target, draft : a folder, a name on the Hugging Face Hub, or a member of the embedded family;
        where only costs are measured also a shape (``specsim.hardware.read_config``).  The draft
        ``prompt-lookup`` is no model: it copies what followed the longest match of the text's last
        tokens, at most three, where they came first (vLLM calls it ngram)
    device : as torch names it; None is a GPU if there is one
    dtype : number type of the weights; None is float32 on a CPU and bfloat16 elsewhere
    threads : on a CPU; None is 1 for the embedded family, and otherwise what a trial of plain steps
        of the target finds clearly faster than fewer (OMP_NUM_THREADS is the most that is tried)
    trust_remote_code : run the code that comes with the models; only for models you trust
    """

    target: str = "embedded/target"
    draft: str = "embedded/small"
    device: str | None = None
    dtype: Dtype | None = None
    threads: int | None = None
    trust_remote_code: bool = False

    def __post_init__(self) -> None:
        if self.threads is not None:
            integer("threads", self.threads, low=1, high=_MOST_THREADS)

    @staticmethod
    def of(
        profile: Profile,
        device: str | None = None,
        threads: int | None = None,
        trust_remote_code: bool = False,
    ) -> Models:
        """Those of a profile, where they were measured unless another place is named."""
        return Models(
            target=profile.target.name,
            draft=profile.draft.name,
            device=device or profile.hardware.device,
            dtype=profile.software.dtype,
            threads=threads or profile.hardware.threads,
            trust_remote_code=trust_remote_code,
        )

    def place(self) -> Place:
        """The device and the number type; sets the number of threads unless it is to be tried."""
        need_torch()
        from calibrate.models.place import find_place

        return find_place(self.device, self.dtype, self._threads)

    def load(self) -> Pair:
        """Both, checked to be of one tokenizer; or the target, for which prompt lookup drafts."""
        device, dtype = self.place()
        from calibrate.models.load import load_pair

        pair = load_pair(self.target, self.draft, device, dtype, self.trust_remote_code)
        self.try_threads(pair.target.model)
        return pair

    def require_draft_model(self, what: str) -> None:
        """Refuse ``what`` where prompt lookup drafts."""
        from specsim.profiles import PROMPT_LOOKUP, lacks_draft_model

        if self.draft == PROMPT_LOOKUP:
            raise lacks_draft_model(what)

    def try_threads(self, target: Any) -> None:
        """Find the number of threads by a trial with the model, where nobody asked for one."""
        if self._threads is None and next(target.parameters()).device.type == "cpu":
            from calibrate.models.threads import set_fastest_threads

            set_fastest_threads(target)

    @property
    def _threads(self) -> int | None:
        return self.threads or (1 if self.target.startswith("embedded/") else None)


@dataclass(frozen=True)
class Measurement:
    """What is measured of one sequence at a time.

    temperature : one or more
    top_k, top_p : keep only the most probable tokens
    prompts : a file with one a line, or .jsonl with the key prompt, as texts that a chat template
        has been applied to where it applies; None is the held-out modules
    requests : one number, or one for each temperature; at least two, for the intervals
    prompt_tokens : tokens of a prompt, at most
    max_new_tokens : tokens to decode
    gamma_max : the longest draft
    repeats : passes in which every draft length is decoded once, beside plain decoding
    spread_minutes : over which these passes are spread; a shared machine has states that last for
        minutes, and a profile that has seen several knows what speedups become in others
    acceptance_law : what the rates of the profile are of; its trace answers for all of them
    """

    temperature: tuple[float, ...] = (0.0, 1.0)
    top_k: int | None = None
    top_p: float | None = None
    prompts: Path | None = None
    requests: tuple[int, ...] = (16,)
    prompt_tokens: int = 64
    max_new_tokens: int = 128
    gamma_max: int = 8
    repeats: int = 4
    seed: int = 0
    acceptance_law: AcceptanceLaw = "ratio-test"
    spread_minutes: float = 0.0

    def quick(self, keep: Container[str] = ()) -> Measurement:
        """The same in under half a minute for the embedded pair, and so a wider interval: fewer
        requests, tokens, draft lengths and repeats, each where none was asked for.

        keep : names of those that were asked for, though they are what is usual
        """
        usual = Measurement()

        def fewer(name: str, value: Any) -> Any:
            said = getattr(self, name)
            return said if name in keep or said != getattr(usual, name) else value

        return replace(
            self,
            requests=fewer("requests", (6,)),
            max_new_tokens=fewer("max_new_tokens", 40),
            gamma_max=fewer("gamma_max", 4),
            repeats=fewer("repeats", 2),
        )

    def __post_init__(self) -> None:
        from specsim.profiles import LONGEST_DRAFT, MOST_PASSES

        numbers("temperature", self.temperature, low=0.0)
        if len(set(self.temperature)) < len(self.temperature):
            said = ", ".join(f"{each:g}" for each in self.temperature)
            raise InvalidArgumentError(f"temperature must be different numbers, got {said}")
        check_choice("acceptance_law", self.acceptance_law, ACCEPTANCE_LAWS)
        for name in ("prompt_tokens", "max_new_tokens"):
            integer(name, getattr(self, name), low=1)
        integer("gamma_max", self.gamma_max, low=1, high=LONGEST_DRAFT)
        # Each temperature of a repeat is a pass.
        integer("repeats", self.repeats, low=1, high=MOST_PASSES // len(self.temperature))
        number("spread_minutes", self.spread_minutes, low=0.0, high=_LONGEST_SPREAD)
        if len(self.requests) not in (1, len(self.temperature)):
            raise InvalidArgumentError(
                f"requests must be one number or one for each of the {len(self.temperature)} "
                f"temperatures, got {len(self.requests)}"
            )


@dataclass(frozen=True)
class Batches:
    """What run times of whole batches are measured at.

    batch : sequences read together; the default is what engines record their graphs at
    context : tokens in the caches of each; None is 512 and 4096, or what the models can read
    modes : eager, compiled or both; compiled is as CUDA graphs, on a CPU by torch.compile (minutes)
    """

    batch: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    context: tuple[int, ...] | None = None
    modes: tuple[Mode, ...] = ("eager",)


def need_torch() -> None:
    """Say what to install where models cannot be run."""
    for name in ("torch", "transformers"):
        if find_spec(name) is None:
            raise SpecsimError(
                f"measuring needs {name}, which is not installed: pip install 'specsim[calibrate]'"
            )
