"""Profiles that contradict themselves, or the traces that they name: one rule at a time."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import specsim
from specsim import Load
from specsim.checks import InvalidArgumentError
from specsim.files import file_digest
from specsim.profiles import DRIFT, ProfileError, read_profile
from specsim.traces import TraceError
from tests.support.profiles import write_grid

Content = dict[str, Any]
Change = Callable[[Content], None]


def edit(path: str, value: Any) -> Change:
    """Put a value where a path such as ``grid.17.tokens`` leads; a function gets the old one."""
    *way, last = [int(word) if word.isdigit() else word for word in path.split(".")]

    def change(content: Any) -> None:
        for key in way:
            content = content[key]
        content[last] = value(content[last]) if callable(value) else value

    return change


def twice(name: str, at: int, **changes: Any) -> Change:
    """An entry of a list once more."""
    return lambda content: content[name].append({**content[name][at], **changes})


def exchanged(content: Content) -> None:
    lookup = {**content["draft"], "parameters": 0, "longest_match": 3}
    content["target"], content["draft"] = lookup, content["target"]


RATES = ("alpha", "survival.0", "survival.3", "conditional.0", "conditional.2")
LISTS = ("run_times", "overhead", "grid", "batch_overhead")
MISSING = {"batch": 1, "context": 64, "mode": "eager", "reason": "out of memory"}
A = "acceptance.0"
IMPOSSIBLE: dict[str, tuple[Change, str]] = {
    **{
        f"{rate}: {name} {value}": (edit(f"{A}.{rate}.{name}", value), said)
        for rate in RATES
        for name, value, said in (
            ("low", 1.0, r"low must be <= high|best must be in|must not rise"),
            ("high", 0.0, r"low must be <= high|best must be in"),
            ("best", 1.5, "<= 1"),
            ("best", -0.5, ">= 0"),
        )
    },
    "survival rises": (edit(f"{A}.survival.3.best", 0.9), "best must|must not rise|product"),
    "survival is all one": (
        edit(f"{A}.survival", [{"low": 1.0, "best": 1.0, "high": 1.0}] * 4),
        r"survival\[0\].best must be the product",
    ),
    "survival is shorter": (edit(f"{A}.survival", lambda rates: rates[:3]), "of equal length"),
    "survival is longer": (edit(f"{A}.survival", lambda rates: rates * 2), "of equal length"),
    "survival is empty": (edit(f"{A}.survival", []), "of equal length"),
    "gamma_max is another": (edit("gamma_max", 5), r"must have gamma_max = 5 rates, got 4"),
    "gamma_max is endless": (edit("gamma_max", 10**9), "<= 1000"),
    "fewer tokens than requests": (edit(f"{A}.tokens", 19), r"tokens must be in \[20, 1000\]"),
    "more tokens than there is room": (edit(f"{A}.tokens", 1001), r"tokens must be in"),
    "one request": (edit(f"{A}.requests", 1), ">= 2"),
    "drafts longer than requests": (edit(f"{A}.max_new_tokens", 3), "tokens must be in"),
    "a temperature twice": (twice("acceptance", 0), r"acceptance\[1\]: is of the same as"),
    **{
        f"{name} twice": (twice(name, 2), rf"{name}\[\d+\]: is of the same as {name}\[2\]")
        for name in LISTS
    },
    "a run time twice, ten per cent apart": (
        twice("grid", 17, seconds=[0.02], plain=[0.01]),
        r"grid\[\d+\]: is of the same as grid\[17\]",
    ),
    "everything twice": (edit("grid", lambda rows: rows * 2), "is of the same as"),
    **{
        f"{name}: a run of {value} s": (edit(f"{name}.3.seconds", [value]), said)
        for name in ("run_times", "grid")
        for value, said in (
            (1e300, "<= 3600"),
            (0.0, "> 0"),
            (-1.0, "> 0"),
            (None, "Expected `float`"),
            ("slow", "Expected `float`"),
        )
    },
    **{f"no runs: {name}": (edit(f"{name}.0.seconds", []), ">= 1") for name in LISTS},
    "as many plain steps": (edit("grid.0.plain", [0.01]), "plain must be as long as seconds"),
    "as many passes": (edit("grid.0.passes", [1]), "passes must be as long as seconds"),
    "passes beyond any": (edit("grid.0.passes", [10**9] * 3), "<= 9999|< 10000"),
    "overhead far below nothing": (edit("overhead.0.seconds", [-1e5]), ">= -3600"),
    "overhead of longer drafts": (edit("overhead.2.gamma", 5), r"overhead\[2\]: gamma must be <="),
    "overhead of endless drafts": (edit("batch_overhead.2.gamma", 10**9), "gamma must be <="),
    "run times of a batch": (edit("run_times.0.batch", 2), r"run_times\[0\]: batch must be 1"),
    "overhead of a batch": (edit("overhead.0.batch", 2), r"overhead\[0\]: batch must be 1"),
    "a cell that is missing and there": (edit("missing", [MISSING]), r"missing\[0\]: batch 1"),
    "a missing cell twice": (
        edit("missing", [{**MISSING, "batch": 99}] * 2),
        r"missing\[1\]: is of the same as",
    ),
    "a batch of none": (edit("grid.0.batch", 0), ">= 1"),
    "a run over nothing": (edit("grid.0.tokens", 0), ">= 1"),
    "a context below nothing": (edit("grid.0.context", -1), ">= 0"),
    "a third model": (edit("grid.0.model", "judge"), "Invalid enum value"),
    "a mode of its own": (edit("grid.0.mode", "fast"), "Invalid enum value"),
    "prompt lookup as the target": (exchanged, "were target and draft exchanged"),
    "a target without parameters": (edit("target.parameters", 0), "target: parameters must be >="),
    "a lookup with parameters": (
        edit("draft", lambda draft: {**draft, "longest_match": 3}),
        "draft: prompt lookup has no parameters",
    ),
    "runs of a lookup": (
        edit("draft", lambda draft: {**draft, "parameters": 0, "longest_match": 3}),
        r"run_times\[\d+\]: is of the draft",
    ),
    **{
        f"a trace at {name[:20]!r}": (edit(f"{A}.trace.file", name), "named without a folder")
        for name in ("../p.trace.parquet", "/etc/passwd", "", "..", "a/b", "a\\b", "x\0", "n" * 300)
    },
    **{
        f"a hash {name[:10]!r}": (edit(f"{A}.trace.sha256", name), "matching regex")
        for name in ("", "0" * 63, "0" * 65, "G" * 64, "../" * 21 + "a")
    },
    "a law of its own": (edit(f"{A}.acceptance_law", "typical"), "Invalid enum value"),
    "a field of its own": (edit("surprise", 1), "unknown field `surprise`"),
    "notes that are none": (edit("notes", 3), "Expected `array`"),
    "a version to come": (edit("version", 99), "has version 99"),
    "no version": (edit("version", None), "has version None"),
}


@pytest.mark.parametrize("name", list(IMPOSSIBLE))
def test_what_cannot_be_is_refused(tmp_path: Path, name: str) -> None:
    change, said = IMPOSSIBLE[name]
    path = write_grid(tmp_path)
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    with pytest.raises(ProfileError, match=said) as refused:
        read_profile(path)
    assert str(refused.value).startswith(f"profile {path}: ")
    assert "\n" not in str(refused.value)
    # And by whoever is asked something of it.
    for call in (
        lambda: specsim.optimize(profile=path),
        lambda: specsim.optimize(0.8, profile=path, load=Load([1], [64])),
    ):
        with pytest.raises(ProfileError):
            call()


def traced(folder: Path, change: Callable[[pd.DataFrame], pd.DataFrame]) -> Path:
    """A profile whose trace was changed, its hash with it."""
    path = write_grid(folder)
    content = json.loads(path.read_text())
    trace = folder / content["acceptance"][0]["trace"]["file"]
    change(pd.read_parquet(trace)).to_parquet(trace)
    content["acceptance"][0]["trace"]["sha256"] = file_digest(trace)
    path.write_text(json.dumps(content))
    return path


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda f: f[f["request"] < 19], "has 19 requests, the profile says 20"),
        (lambda f: f[(f["request"] < 19) | (f["position"] < 9)], "has 959 tokens, the profile"),
        (lambda f: f.assign(logp_draft=f["logp_target"]), "has a mean acceptance of 1.0000"),
        (lambda f: f.assign(context=10), "context must be the prompt's tokens"),
        (lambda f: f.assign(context=f["position"]), "context must be the prompt's tokens"),
        (lambda f: f.assign(found=1, matched=1), "is of prompt lookup, the profile of d"),
    ],
)
def test_a_trace_unlike_the_profile_is_refused(
    tmp_path: Path, change: Callable[[pd.DataFrame], pd.DataFrame], said: str
) -> None:
    path = traced(tmp_path, change)
    with pytest.raises(ProfileError, match=said) as refused:
        specsim.optimize(profile=path)
    assert "\n" not in str(refused.value)


def test_a_trace_of_longer_requests_is_refused(tmp_path: Path) -> None:
    """It would give draft lengths below nothing behind the limit."""
    path = write_grid(tmp_path)
    content = json.loads(path.read_text())
    content["acceptance"][0] |= {"max_new_tokens": 49, "tokens": 980}
    path.write_text(json.dumps(content))
    with pytest.raises(ProfileError, match="has 1000 tokens, the profile says 980"):
        specsim.optimize(profile=path)
    half = np.arange(20) < 10  # as many tokens, of other lengths
    lengths = np.where(half, 60, 40)
    frame = pd.DataFrame(
        {
            "request": np.repeat(np.arange(20), lengths),
            "position": np.concatenate([np.arange(length) for length in lengths]),
            "logp_target": 0.0,
            "logp_draft": np.log(content["acceptance"][0]["alpha"]["best"]),
        }
    )
    path = traced(tmp_path, lambda _: frame)
    with pytest.raises(ProfileError, match="has a request of 60 tokens, the profile says max_new"):
        specsim.optimize(profile=path)


def test_a_trace_that_is_not_there_or_no_file_is_refused(tmp_path: Path) -> None:
    path = write_grid(tmp_path)
    trace = tmp_path / "p.trace.parquet"
    trace.unlink()
    with pytest.raises(TraceError, match="no such file"):
        specsim.optimize(profile=path)
    trace.mkdir()
    with pytest.raises(TraceError, match="is a folder"):
        specsim.optimize(profile=path)


def test_what_is_odd_is_a_warning_of_what_rests_on_it(tmp_path: Path) -> None:
    path = write_grid(tmp_path)
    content = json.loads(path.read_text())
    content["draft"]["parameters"] = 5000
    content["grid"][17]["seconds"] = [3.0, 3.0, 3.0][: len(content["grid"][17]["seconds"])]
    path.write_text(json.dumps(content))
    exchanged, slow = read_profile(path).warnings
    assert "the draft d has 5,000 parameters, the target t 1,000: were the two" in exchanged
    assert slow.startswith("grid[17]: a run of the target over 3 tokens takes ")
    found = specsim.optimize(profile=path)
    assert {exchanged, slow} <= set(found.warnings)
    by_load = specsim.optimize(profile=path, load=Load([1], [64]))
    assert {exchanged, slow} <= set(by_load.warnings)
    # Only other programs beside it make a measurement less sure.
    assert read_profile(path).drift == DRIFT


def test_many_odd_cells_are_said_in_few_lines(tmp_path: Path) -> None:
    path = write_grid(tmp_path)
    content = json.loads(path.read_text())
    for row in content["grid"]:
        row["plain"] = [1e-9] * len(row["seconds"])
    path.write_text(json.dumps(content))
    assert len(read_profile(path).warnings) == 4


def test_a_temperature_is_measured_once() -> None:
    with pytest.raises(InvalidArgumentError, match="temperature must be different numbers"):
        specsim.Measurement(temperature=(0.0, 1.0, -0.0))


def test_quartiles_of_an_older_profile_are_in_order(tmp_path: Path) -> None:
    path = write_grid(tmp_path)
    content = json.loads(path.read_text()) | {"version": 2}
    quartiles = {"median_s": 0.01, "low_s": 0.02, "high_s": 0.03}
    row = {"model": "target", "follows": "draft", "tokens": 1, "context": 10, **quartiles}
    path.write_text(json.dumps(content | {"run_times": [row], "overhead": []}))
    with pytest.raises(ProfileError, match=r"run_times\[0\]: median_s must be in \[low_s, high_s"):
        read_profile(path)
