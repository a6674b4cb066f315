"""What ``specsim.validate`` can check, and what comes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, ClassVar, Literal

from specsim.acceptance import AlphaLike
from specsim.api.result import Result, Row
from specsim.checks import InvalidArgumentError, check_choice, integer, number, refuse
from specsim.profiles import MOST_PASSES, Mode

# Tokens that vLLM's ngram looks up (vllm/config/speculative.py, __post_init__).
_LOOKUP = 5


@dataclass(frozen=True)
class Tolerance:
    """The largest relative errors of a speedup that pass: the median, and the worst of all.

    None lets everything pass.
    """

    median: float | None = None
    worst: float | None = None

    def __post_init__(self) -> None:
        for name, value in (("median", self.median), ("worst", self.worst)):
            if value is not None:
                number(f"tolerance {name}", value, low=0.0)

    def exceeded(self, errors: Sequence[float]) -> list[str]:
        """Which of the two the relative errors are over, a sentence each."""
        sizes = [abs(error) for error in errors]
        failures = []
        if self.median is not None and median(sizes) > self.median:
            failures.append(f"the median error is over the tolerance of {self.median:g}")
        if self.worst is not None and max(sizes) > self.worst:
            failures.append(f"the worst error is over the tolerance of {self.worst:g}")
        return failures


@dataclass(frozen=True)
class SpeedupCheck:
    """Decode plainly and speculatively, and compare tokens and speedups.

    gamma : draft lengths; None is 1 to the profile's longest
    temperature : one of the profile's; None is all
    requests : on each set of prompts, at most
    prompts : the file that was calibrated with; None is the held-out modules
    only : those prompts alone, or only unseen ones
    """

    tolerance: ClassVar[Tolerance | None] = None

    gamma: tuple[int, ...] | None = None
    temperature: float | None = None
    requests: int = 12
    prompts: Path | None = None
    only: Literal["calibration", "unseen"] | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        # Run times are numbered by requests.
        integer("requests", self.requests, low=2, high=MOST_PASSES)
        integer("seed", self.seed)
        if self.only is not None:
            check_choice("only", self.only, ("calibration", "unseen"))


@dataclass(frozen=True)
class BlindCheck:
    """Fix what the profile predicts in a file, then let every decoder run alone, and compare.

    Whole requests in random order, in several passes: the figure is the mean over passes, so that
    the drift of the machine is part of its error.  At temperature 0 every pass decodes the same
    requests; above, where texts differ by chance, each takes the next of the calibration's.

    gamma : draft lengths; None is 1 to the profile's longest
    temperature : one of the profile's; None is all
    requests : of the calibration's, that a pass decodes, at most
    prompts : the file that was calibrated with; None is the held-out modules
    passes : at least two
    """

    tolerance: ClassVar[Tolerance | None] = None

    gamma: tuple[int, ...] | None = None
    temperature: float | None = None
    requests: int = 8
    prompts: Path | None = None
    passes: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        integer("requests", self.requests, low=2)
        integer("passes", self.passes, low=2)
        integer("seed", self.seed)


@dataclass(frozen=True)
class SchemeCheck:
    """Decode with the schemes of all papers, and compare runs, tokens, speedups and quality.

    schemes : names, or "all"
    others : further models by their role (middle, masks, aligned, eagle); the embedded family has
        its own
    temperature : one of the profile's; None is all
    requests : at most; all schemes decode a request side by side, which takes long, and once more
        to be timed, six at least
    prompts : the file that was calibrated with; None is the held-out modules
    """

    tolerance: ClassVar[Tolerance | None] = None

    schemes: tuple[str, ...] = ("all",)
    others: Mapping[str, str] = field(default_factory=dict)
    temperature: float | None = None
    requests: int = 6
    prompts: Path | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        integer("requests", self.requests, low=2)
        integer("seed", self.seed)


@dataclass(frozen=True)
class SyntheticCheck:
    """Decode batches with acceptance drawn, not tested: that tests the run times alone.

    The profile must have a grid of them (``Batches``).

    batch, context : None is as in the profile
    gamma : draft lengths; None is 1 to the longest that was measured
    temperature : one of the profile's; None is all
    alpha : acceptance; None is as in the profile
    mode : how models run; None is compiled, if that was measured
    rounds : how often each cell is decoded; draft lengths that are clearly slower have fewer
    """

    tolerance: ClassVar[Tolerance | None] = None

    batch: tuple[int, ...] | None = None
    context: tuple[int, ...] | None = None
    gamma: tuple[int, ...] | None = None
    temperature: float | None = None
    alpha: AlphaLike | None = None
    mode: Mode | None = None
    rounds: int = 8
    seed: int = 0

    def __post_init__(self) -> None:
        integer("rounds", self.rounds, low=2)
        integer("seed", self.seed)


# What servers are told of the profile's models and of what is asked of them.
_OWN_WORDS = (
    *("--model", "--dtype", "--max-num-seqs", "--speculative-config", "--generation-config"),
    *("--host", "--port", "--seed", "-sc"),
)
# Tokens of a text at most.
_CONTEXT = "--max-model-len"


@dataclass(frozen=True)
class EngineCheck:
    """Let a real inference engine decode the calibration's prompts, and compare what it counts.

    One engine is started for each draft length, half a minute each on a small model.

    engine : vllm
    api : its server, ``vllm serve``, or ``LLM.generate``
    gamma : draft lengths; None is 1 to the profile's longest, or that of the server at ``url``
    temperature : one of the profile's; None is all
    requests : at most
    prompts : the file that was calibrated with; None is the held-out modules
    url : a running server, such as http://127.0.0.1:8000, instead of starting one.  It must draft
        as ``method``, ``drafts`` and the profile say, and serve nobody else meanwhile
    engine_bin : the program to start; None is $ENGINE_VENV/bin/vllm, .engine/bin/vllm beside
        specsim's .venv or in the checkout, or vllm on the PATH, in this order
    method : who drafts: the profile's draft model, or look-ups in the text (ngram)
    drafts : how the draft model's tokens are chosen; greedy is vLLM's default, at any temperature
    lookup_max, lookup_min : with ngram, the longest and the shortest run of tokens to look up; None
        is the other one, and 5 if both are, as in vLLM
    engine_args : further words of ``vllm serve``, as it is deployed: ("--block-size", "32"), or
        ("--max-model-len", "4096") where the models read longer texts than the memory holds.  What
        is said of models, drafts and requests together is said by specsim alone
    """

    tolerance: ClassVar[Tolerance | None] = Tolerance(0.0)

    engine: Literal["vllm"] = "vllm"
    api: Literal["serve", "generate"] = "serve"
    gamma: tuple[int, ...] | None = None
    temperature: float | None = None
    requests: int = 32
    prompts: Path | None = None
    url: str | None = None
    engine_bin: Path | None = None
    method: Literal["draft_model", "ngram"] = "draft_model"
    drafts: Literal["greedy", "probabilistic"] = "greedy"
    lookup_max: int | None = None
    lookup_min: int | None = None
    engine_args: tuple[str, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        integer("requests", self.requests, low=1)
        self._check_engine_args()
        if self.url is not None:
            refuse({"engine_bin": self.engine_bin}, "has no meaning with url: nothing is started")
            if self.api != "serve":
                raise InvalidArgumentError(f"api must be serve with url, got {self.api}")
        lookups = {"lookup_max": self.lookup_max, "lookup_min": self.lookup_min}
        if self.method != "ngram":
            refuse(lookups, "goes with method ngram")
        elif self.drafts != "greedy":
            raise InvalidArgumentError(
                f"drafts must be greedy with method ngram, whose drafts are read in the text, got "
                f"{self.drafts}"
            )
        for name, given in lookups.items():
            if given is not None:
                integer(name, given, low=1)
        longest, shortest = self.lookups
        integer("lookup_min", shortest, low=1, high=longest)

    @property
    def lookups(self) -> tuple[int, int]:
        """The longest and the shortest run of tokens that ngram looks up."""
        longest, shortest = self.lookup_max, self.lookup_min
        if longest is None:
            longest = _LOOKUP if shortest is None else shortest
        return longest, longest if shortest is None else shortest

    def context(self, longest: int) -> int:
        """Tokens of a text that engines are started for, of models that read ``longest``."""
        return longest if self._told is None else integer(_CONTEXT, self._told, low=2, high=longest)

    @property
    def _told(self) -> str | None:
        """What ``engine_args`` say of the longest text."""
        words = [word for each in self.engine_args for word in each.split("=", 1)]
        places = [at for at, word in enumerate(words) if word.replace("_", "-") == _CONTEXT]
        return "".join(words[places[-1] + 1 :][:1]) if places else None

    def _check_engine_args(self) -> None:
        if self.engine_args and (self.url is not None or self.api != "serve"):
            raise InvalidArgumentError(
                "engine_args are words of a server that is started: they go with neither url nor "
                "api generate"
            )
        for word in self.engine_args:
            # One entry of a JSON argument may be said by itself: --speculative-config.method ngram.
            name = word.partition("=")[0].partition(".")[0].replace("_", "-")
            if name in _OWN_WORDS:
                raise InvalidArgumentError(
                    f"engine_args must not name what specsim says itself "
                    f"({', '.join(_OWN_WORDS)}), got {word}"
                )
        if self._told is not None:
            integer(_CONTEXT, self._told, low=2)


@dataclass(frozen=True)
class CountsCheck:
    """Predict what an engine counted at one draft length from what it counted at others.

    For an acceptance file of ``specsim.read``; no model is run.  A prediction holds where it is no
    further off than the intervals of both explain.

    counted : another acceptance file to predict; None is each draft length from all others
    """

    tolerance: ClassVar[Tolerance | None] = None

    counted: Path | None = None


AnyCheck = SpeedupCheck | BlindCheck | SchemeCheck | SyntheticCheck | EngineCheck | CountsCheck

# What a person reads of the rows of each check, the most important first; json and csv have every
# column.
_COLUMNS: dict[type, tuple[str, ...]] = {
    SpeedupCheck: (
        *("temperature", "prompts", "gamma", "predicted_speedup", "measured_speedup"),
        *("relative_error", "exact", "z", "predicted_tokens_per_call", "measured_tokens_per_call"),
        *("formula_speedup", "error_drift", "error_acceptance", "error_draft", "error_verify"),
        "error_overhead",
    ),
    BlindCheck: (
        *("temperature", "gamma", "predicted_speedup", "predicted_low", "predicted_high"),
        *("measured_speedup", "relative_error", "inside", "chosen", "measured_error"),
        *("formula_speedup", "predicted_tokens_per_call", "measured_tokens_per_call", "exact"),
    ),
    SchemeCheck: (
        *("temperature", "scheme", "setting", "predicted_speedup", "measured_speedup"),
        *("relative_error", "exact", "law_tokens_per_call", "predicted_tokens_per_call"),
        *("measured_tokens_per_call", "runs", "log_loss", "accuracy", "agreement"),
    ),
    CountsCheck: (
        *("gamma", "predicted_tokens_per_call", "predicted_tokens_per_call_low"),
        *("predicted_tokens_per_call_high", "measured_tokens_per_call", "relative_error"),
        *("inside", "measured_tokens_per_call_low", "measured_tokens_per_call_high", "rounds"),
        *("cut_or_held_tokens_per_call", "cut_or_held_error", "predicted_from", "model"),
    ),
    SyntheticCheck: (
        *("temperature", "batch", "context", "gamma", "predicted_speedup", "measured_speedup"),
        *("measured_low", "measured_high", "relative_error", "predicted_best", "measured_best"),
        *("loss", "tokens_per_call", "error_draft", "error_verify", "error_overhead"),
    ),
    EngineCheck: (
        *("temperature", "gamma", "requests", "replayed_rounds", "counted_rounds", "exact"),
        *("largest_z", "replayed_tokens_per_call", "counted_tokens_per_call"),
        *("other_law_rounds", "other_law_z", "accepted"),
    ),
}

_TITLES = {
    CountsCheck: "predicted from other draft lengths, and counted",
    SpeedupCheck: "predicted and measured",
    BlindCheck: "predicted before, and measured",
    SchemeCheck: "predicted and measured; runs are per 100 tokens",
    SyntheticCheck: "synthetic acceptance, predicted and measured",
    EngineCheck: "counted by the engine and replayed; accepted by position, replayed / counted",
}


@dataclass(frozen=True, kw_only=True)
class Validation(Result):
    """Predicted beside measured, and whether the predictions hold.

    measured : the rows; every check has columns of its own
    errors : sentences on how close the predictions were
    failures : what did not pass
    """

    schema: ClassVar[str] = "specsim.validate"

    check: AnyCheck
    measured: tuple[Row, ...]
    errors: tuple[str, ...]
    failures: tuple[str, ...]

    @property
    def title(self) -> str:
        return _TITLES[type(self.check)]

    @property
    def passed(self) -> bool:
        return not self.failures

    def rows(self) -> list[Row]:
        return list(self.measured)

    def table(self) -> list[Row]:
        """The columns that a person reads, with what is counted many times a row in one column.

        runs are of every model, predicted / measured; accepted by position, replayed / counted
        """
        rows = [
            {
                **row,
                **({"runs": _runs(row)} if "runs_z" in row else {}),
                **({"accepted": _accepted(row)} if "counted_accepted" in row else {}),
            }
            for row in self.measured
        ]
        columns = list(_COLUMNS[type(self.check)])
        if "temperature" in columns and len({row["temperature"] for row in rows}) == 1:
            columns.remove("temperature")
        return [{name: row[name] for name in columns} for row in rows]

    @property
    def essential(self) -> tuple[str, ...]:
        return _COLUMNS[type(self.check)]

    def summary(self) -> Row:
        return {
            "passed": self.passed,
            "errors": list(self.errors),
            "failures": list(self.failures),
        }

    def sentences(self) -> list[str]:
        return [*self.errors, *(f"failed: {each}" for each in self.failures)]


def _accepted(row: Mapping[str, Any]) -> str:
    pairs = zip(row["replayed_accepted"].values(), row["counted_accepted"].values(), strict=True)
    return ", ".join(f"{expected:.0f} / {counted:.0f}" for expected, counted in pairs)


def _runs(row: Mapping[str, Any]) -> str:
    pairs = zip(row["predicted_runs"].items(), row["measured_runs"].values(), strict=True)
    return ", ".join(
        f"{model} {expected:.0f} / {counted:.0f}" for (model, expected), counted in pairs
    )
