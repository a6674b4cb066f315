"""Work beyond bounds is refused before it is begun, in one line that names what to change."""

from __future__ import annotations

import resource
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.support.command_line import fail, run
from tests.support.positions import write_positions
from tests.support.profiles import write

# Memory that a refusal may take beyond what is there.
_ROOM = 2**30


@pytest.fixture(autouse=True)
def little_memory() -> Iterator[None]:
    """A table of 10^9 numbers is a MemoryError here, and no minute of swapping."""
    if not sys.platform.startswith("linux"):
        yield
        return
    # When it is first used, pyarrow's pool takes a GiB of addresses, which no refusal asks for.
    pa.array(np.zeros(1), mask=np.zeros(1, dtype=bool))
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    usual = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + _ROOM, usual[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, usual)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("evaluate bild --fallback 0.2 --rollback 0.05 --c 0.1 --window 1e9", "too large"),
        ("evaluate oracle --alpha 0.8 --c 0.05 --gamma-max 1e9", "too large"),
        ("evaluate speculative --alpha 0.8 --c 0.05 --gamma 1e9", "too large"),
        ("evaluate specdec --alpha 0.9 --block-size 1e9 --c 0.3", "too large"),
        ("evaluate token-cascade --deferral 0.3 --cap 1e9 --c 0.1", "too large"),
        ("evaluate beam-search --alpha 0.7 --gamma 1e9 --beams 4 --draft-beam 8 --c 0.05", "too l"),
        ("evaluate adaptive-heuristic --alpha 0.8 --c 0.05 --gamma-max 100000", "gamma_max must"),
        ("simulate adaptive-heuristic --alpha 0.8 --c 0.05 --gamma-max 1e9", "gamma_max must"),
        ("simulate adaptive-estimate --alpha 0.8 --c 0.05 --gamma-max 1e9", "gamma_max must"),
        ("simulate adaptive-estimate --alpha 0.8 --c 0.05 --blocks 1e12", "blocks must be a whole"),
        ("simulate speculative --alpha 0.8 --gamma 5 --c 0.1 --blocks 1e18", "blocks must"),
        (
            "simulate speculative --alpha 0.8 --gamma 5 --c 0.1 --tokens 9 --requests 1e12",
            "requests must be a whole number in [2, 10000000]",
        ),
        ("simulate speculative --alpha 0.8 --gamma 5 --c 0.1 --tokens 1e12", "tokens must be a wh"),
        (
            "simulate speculative --alpha 0.8 --gamma 5 --c 0.1 --tokens 1e5 --requests 1e5",
            "tokens * requests must be <= 1,000,000,000",
        ),
        (
            "evaluate --alpha 0.8 --c 0.1 --gamma 1e9",
            "gamma must be a whole number in [0, 10000000]",
        ),
        ("optimize --alpha 0.8 --c 0.1 --gamma-max 1e9", "gamma_max must be a whole number in"),
        ("allocate --drafter a:0.8:0.1 --drafter b:0.7:0.05 --gamma-max 1e6", "gamma_max must be"),
        (
            "evaluate vertical-cascade --drafters a,b --alpha 0.7/0.8 --gamma 3 --c 0.1 "
            "--at-least 1000000",
            "too large",
        ),
        (
            "optimize horizontal-cascade --drafters a,b,d --lengths 0:99,0:99,0:99 "
            "--alpha 0.8 --c 0.1",
            "--lengths must be at most 100,000 combinations, got 1,000,000",
        ),
        ("optimize speculative --alpha 0.8 --c 0.1 --gamma 0:1e9", "must be at most 1,000,000 num"),
        (
            "serve --rate 4 --prompt 512 --output 100000 --requests 20000 --step-cost step_ms=5 "
            "--engine vllm:num_gpu_blocks=100000",
            "tokens to go through step by step (prompts by the 64), at most 1,000,000,000",
        ),
    ],
)
def test_what_would_take_too_much_is_refused(
    capsys: pytest.CaptureFixture[str], words: str, said: str
) -> None:
    assert said in fail(capsys, *shlex.split(words))


def test_draft_lengths_of_a_file_are_bounded(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    positions, trace = write_positions(tmp_path), write(tmp_path).with_name("p.trace.parquet")
    assert "gamma must be a whole number in [0, 100000]" in fail(
        capsys, "defer", str(positions), "--c", "0.1", "--gamma", "1e9"
    )
    assert "gamma must be a whole number in [0, 1000000]" in fail(
        capsys, "replay", str(trace), "--gamma", "1e9"
    )
    assert "must be at most 1,000,000 numbers" in fail(
        capsys, "replay", str(trace), "--gamma", "0:1000000000"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("evaluate sequence-cascade --deferral 0 --c 0", "c must be > 0 here"),
        ("simulate sequence-cascade --deferral 0 --c 0", "c must be > 0 here"),
        ("optimize --alpha 0.8 --c 0 --verify-cost 1,0,0", "verify cost of 2 tokens must be > 0"),
        ("evaluate --alpha 1 --c 0 --gamma 2 --verify-cost 1,1,0", "verify cost of 3 tokens must"),
        ("evaluate speculative --alpha 1 --gamma 2 --c 0 --verify-cost 1,0,0", "verify cost of 2"),
        ("allocate --drafter a:1:0 --verify-cost 1,0,0 --gamma-max 2", "verify cost of 2 tokens"),
        ("optimize --alpha 0.8 --c 0.05 --verify-cost 1.05", "verify cost must have at least two"),
        ("allocate --drafter a:1:0 --verify-cost 1.05", "verify cost must have at least two"),
        (
            "optimize horizontal-cascade --drafters a,b --lengths 1,1 --alpha 0.7/0.6 --cost a=0.1 "
            "--cost a=0.9",
            "--cost a is given twice",
        ),
    ],
)
def test_a_block_that_costs_nothing_has_no_speedup(
    capsys: pytest.CaptureFixture[str], words: str, said: str
) -> None:
    assert said in fail(capsys, *shlex.split(words))


@pytest.mark.parametrize(
    "words",
    [
        "optimize horizontal-cascade --drafters base,small --lengths 0:8,0:8 --alpha 0.73/0.65 "
        "--cost base=0.022 --cost small=0.0068",
        "optimize horizontal-cascade --drafters base,small --lengths 1:8,0:8 --alpha 0.73/0.65 "
        "--cost base=0.022 --cost small=0.0068",
        "optimize speculative --alpha 0.8 --gamma 0:8 --cost draft=0.1",
    ],
)
def test_a_candidate_that_drafts_nothing_is_a_candidate(
    capsys: pytest.CaptureFixture[str], words: str
) -> None:
    code, out, _ = run(capsys, *shlex.split(words))
    assert (code, bool(out)) == (0, True)
