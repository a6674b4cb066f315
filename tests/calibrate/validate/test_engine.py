"""``specsim validate --engine vllm`` as a user types it, on a server that replays a trace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import specsim
from calibrate.engine.client import Completed, EngineClient
from calibrate.engine.server import Launch
from calibrate.engine.servers import Servers, speculative_config
from calibrate.validate import engine as validate_engine
from calibrate.validate.findings import engine_findings
from specsim.checkpoint import Checkpoint
from specsim.checks import InvalidArgumentError, UnsupportedError
from specsim.profiles import read_profile
from tests.support.command_line import fail, rows, run
from tests.support.engine_server import serving
from tests.support.profiles import write
from tests.support.refusals import refuses
from tests.support.replayed_engine import LIMIT, REQUESTS, engine


def words(profile: Path, prompts: Path, url: str, *more: str) -> list[str]:
    return [
        *("validate", str(profile), "--prompts", str(prompts), "--engine", "vllm", "--url", url),
        *more,
    ]


def test_counts_of_an_engine_are_kept_for_that_engine_alone(
    profile: Path, prompts: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Killed with the first length counted; another program, or the same one under other
    variables, begins anew.
    """
    started: list[int] = []

    @contextmanager
    def client(servers: Servers, gamma: int) -> Iterator[EngineClient]:
        started.append(gamma)
        if kill and gamma == 2:
            raise KeyboardInterrupt
        with serving(engine(profile, prompts, gamma)) as url:
            yield EngineClient(url)

    monkeypatch.setattr(Servers, "client", client)
    kill = True
    programs = [tmp_path / name / "vllm" for name in ("one", "other")]
    for each in programs:
        each.parent.mkdir()
        each.touch(0o755)

    def counted(program: Path) -> list[int]:
        started.clear()
        check = specsim.EngineCheck(gamma=(1, 2), prompts=prompts, engine_bin=program)
        with suppress(KeyboardInterrupt):
            specsim.validate(profile, check)
        return list(started)

    assert counted(programs[0]) == counted(programs[1]) == [1, 2]
    assert counted(programs[0]) == [2]
    with monkeypatch.context() as patch:
        patch.setenv("VLLM_CPU_KVCACHE_SPACE", "3")
        kill = False
        assert counted(programs[0]) == [1, 2]
    assert counted(programs[0]) == counted(programs[1]) == [2]
    assert counted(programs[0]) == [1, 2], "what was done is done"


def test_counts_of_the_replayed_text_are_equal(
    capsys: pytest.CaptureFixture[str], profile: Path, prompts: Path
) -> None:
    state = engine(profile, prompts)
    with serving(state) as url:
        code, out, err = run(capsys, *words(profile, prompts, url, "--format", "json"))
    assert code == 0, err
    (row,) = rows(out)
    assert (row["gamma"], row["requests"], row["temperature"]) == (2, REQUESTS, 0)
    assert row["counted_rounds"] == row["replayed_rounds"] == state.rounds
    assert list(row["counted_accepted"].values()) == state.accepted[:2]
    assert row["exact"] is row["same_text"] is True
    assert row["largest_z"] == 0
    assert "counts are equal to the replayed ones in 1 of 1 settings" in err


def test_the_table_shows_counted_beside_replayed(
    capsys: pytest.CaptureFixture[str], profile: Path, prompts: Path
) -> None:
    with serving(engine(profile, prompts)) as url:
        code, out, _ = run(capsys, *words(profile, prompts, url, "--format", "markdown"))
    assert code == 0
    header, _, line = out.splitlines()
    assert "replayed_rounds | counted_rounds |" in header
    assert "| accepted |" in header
    assert " / " in line


def test_counts_that_contradict_exit_1(
    capsys: pytest.CaptureFixture[str], profile: Path, prompts: Path
) -> None:
    with serving(engine(profile, prompts, miscounted=1)) as url:
        code, _, err = run(capsys, *words(profile, prompts, url))
    assert code == 1
    assert "rounds counted and" in err
    assert "does it draft as assumed (draft_model, greedy)?" in err


def test_another_text_exits_1(
    capsys: pytest.CaptureFixture[str], profile: Path, prompts: Path
) -> None:
    state = engine(profile, prompts)
    prompt, text = next(iter(state.texts.items()))
    state.texts = {**state.texts, prompt: [63 - text[0], *text[1:]]}
    with serving(state) as url:
        code, _, err = run(capsys, *words(profile, prompts, url))
    assert code == 1
    assert "the text is not that of plain decoding in the profile" in err


def test_copies_are_replayed_by_the_engines_rule(
    capsys: pytest.CaptureFixture[str], profile: Path, prompts: Path
) -> None:
    """A server without a single match drafts nothing, and a text of copies contradicts it."""

    def bounds(tokens: int) -> tuple[str, ...]:
        return ("--lookup-max", str(tokens), "--lookup-min", str(tokens))

    state = engine(profile, prompts)
    state.drafts = {prompt: {place: [] for place in range(LIMIT)} for prompt in state.drafts}
    state.drafts[next(iter(state.drafts))][0] = [0]  # a draft where no round begins
    more = ("--method", "ngram", "--format", "json")
    with serving(state) as url:
        never, out, _ = run(capsys, *words(profile, prompts, url, *more, *bounds(20)))
        often, _, err = run(capsys, *words(profile, prompts, url, *more, *bounds(1)))
    assert never == 0
    assert rows(out)[0]["counted_rounds"] == rows(out)[0]["replayed_rounds"] == 0
    assert rows(out)[0]["counted_tokens_per_call"] is None
    assert often == 1
    assert "(ngram, greedy)" in err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--gamma", "3"), "drafts 2 tokens, gamma must be that, got 3"),
        (("--engine-bin", "vllm"), "engine_bin has no meaning with url"),
        (("--engine-args", "--block-size 32"), "engine_args are words of a server that is started"),
        (
            ("--method", "ngram", "--lookup-min", "6", "--lookup-max", "5"),
            "lookup_min must be a whole number in [1, 5]",
        ),
        (("--scheme", "all"), "--engine goes with neither --scheme nor --synthetic"),
        (("--with", "middle=x"), "--with goes with --scheme"),
        (("--only", "unseen"), "--only does not go with --engine"),
        (("--batch", "4"), "--batch does not go with --engine"),
    ],
)
def test_refused(
    capsys: pytest.CaptureFixture[str],
    profile: Path,
    prompts: Path,
    more: tuple[str, ...],
    message: str,
) -> None:
    with serving(engine(profile, prompts)) as url:
        assert message in fail(capsys, *words(profile, prompts, url, *more))


@pytest.mark.parametrize("url", ["http://127.0.0.1:8000/\u00e4", "http://localhost..:8000"])
def test_an_address_that_is_none_is_one_line(
    capsys: pytest.CaptureFixture[str], profile: Path, prompts: Path, url: str
) -> None:
    assert url in fail(capsys, *words(profile, prompts, url))


def test_a_server_without_drafts_is_told_to_be_started_with_some(
    capsys: pytest.CaptureFixture[str], profile: Path, prompts: Path
) -> None:
    with serving(engine(profile, prompts, 0)) as url:
        said = fail(capsys, *words(profile, prompts, url))
    assert f"{url} drafts nothing: start it with --speculative-config" in said


def test_words_for_a_server_are_those_of_a_shell(
    capsys: pytest.CaptureFixture[str], profile: Path
) -> None:
    typed = ("validate", str(profile), "--engine", "vllm")
    said = fail(capsys, *typed, "--engine-args", "--block-size '32")
    assert "--engine-args has no end: No closing quotation" in said
    said = fail(capsys, *typed, "--engine-args", "--block-size 32 --port '80'")
    assert "engine_args must not name what specsim says itself" in said
    said = fail(capsys, "validate", str(profile), "--engine-args", "--block-size 32")
    assert "--engine-args goes with --engine" in said


def test_refused_without_an_engine(capsys: pytest.CaptureFixture[str], profile: Path) -> None:
    said = fail(capsys, "validate", str(profile), "--url", "http://127.0.0.1:1")
    assert "--url goes with --engine" in said


def test_nobody_at_the_url(
    capsys: pytest.CaptureFixture[str], profile: Path, prompts: Path
) -> None:
    said = fail(capsys, *words(profile, prompts, "http://127.0.0.1:1"))
    assert "http://127.0.0.1:1/metrics cannot be asked" in said


def test_counts_have_no_tolerance_of_speedups(profile: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="tolerance is of speedups"):
        specsim.validate(profile, specsim.EngineCheck(), specsim.Tolerance(0.02, 0.1))


def test_a_text_too_short_for_the_drafts(profile: Path, prompts: Path) -> None:
    state = engine(profile, prompts)
    state.gamma = LIMIT
    with serving(state) as url, pytest.raises(UnsupportedError, match="calibrate with a larger"):
        specsim.validate(profile, specsim.EngineCheck(prompts=prompts, url=url))


def test_what_the_engine_is_told() -> None:
    check = specsim.EngineCheck(drafts="probabilistic")
    assert speculative_config(check, 3, "draft") == {
        "method": "draft_model",
        "model": "draft",
        "num_speculative_tokens": 3,
        "draft_sample_method": "probabilistic",
    }
    bounds = {(None, None): (5, 5), (3, None): (3, 3), (None, 2): (2, 2), (4, 2): (4, 2)}
    for (longest, shortest), both in bounds.items():
        found = specsim.EngineCheck(method="ngram", lookup_max=longest, lookup_min=shortest)
        assert found.lookups == both
    copies = specsim.EngineCheck(method="ngram", lookup_max=4, lookup_min=2)
    assert speculative_config(copies, 3, "draft") == {
        "method": "ngram",
        "num_speculative_tokens": 3,
        "prompt_lookup_min": 2,
        "prompt_lookup_max": 4,
    }


def test_servers_are_started_for_the_models_of_the_profile(profile: Path, tmp_path: Path) -> None:
    program, content = tmp_path / "vllm", read_profile(profile)
    program.touch(0o755)
    check = specsim.EngineCheck(engine_bin=program, engine_args=("--max-model-len", "64"))
    launches = Servers.of(content, check, (0, 2), 32, 7).launches
    speculative = speculative_config(check, 2, content.draft.name)
    words: Any = {"program": program, "target": content.target.name, "dtype": "float32"}
    words |= {"context": 64, "requests": 32, "seed": 7, "more": check.engine_args}
    assert launches == {
        0: Launch(speculative=None, **words),
        2: Launch(speculative=speculative, **words),
    }
    generate = specsim.EngineCheck(engine_bin=program, api="generate")
    usual = Servers.of(content, generate, (2,), 3).launches[2]
    models = content.target.context, content.draft.context
    assert (usual.api, usual.context, usual.requests) == ("generate", min(models), 16)


def test_no_server_is_asked_twice_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed at the second workload of the second server, and started again."""
    asked, started, advanced = list[tuple[int, int]](), list[int](), list[int]()
    die = [True]

    def ask(client: Any, workload: Any, seed: Any, advance: Any) -> Completed:
        gamma = client()
        if die[0] and len(asked) == 3:
            raise KeyboardInterrupt
        asked.append((gamma, workload.number))
        for _ in workload.prompts:
            advance()
        return Completed([[gamma, workload.number]], "before", "after", 1.0)

    @contextmanager
    def client(gamma: int) -> Iterator[int]:
        started.append(gamma)
        yield gamma

    monkeypatch.setattr(validate_engine, "_complete", ask)
    monkeypatch.setattr(validate_engine, "_row", lambda *given: {"texts": given[-1].texts})
    servers: Any = SimpleNamespace(gammas=(1, 2), client=client, url=None)
    workloads: Any = [SimpleNamespace(number=number, prompts=[[1], [2]]) for number in range(2)]

    def validate() -> list[dict[str, Any]]:
        checkpoint, pair = Checkpoint(tmp_path / "work"), cast(Any, None)
        return validate_engine.validate(
            pair, servers, workloads, specsim.EngineCheck(), checkpoint, lambda: advanced.append(1)
        )

    with pytest.raises(KeyboardInterrupt):
        validate()
    assert started == [1, 2]
    die[0] = False
    advanced.clear()
    found = validate()
    assert [row["texts"] for row in found] == [[[g, number]] for g in (1, 2) for number in (0, 1)]
    assert started == [1, 2, 2], "a server that has answered everything is not started again"
    assert asked == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert len(advanced) == 8


ROW: dict[str, Any] = {
    "temperature": 1.0,
    "method": "draft_model",
    "drafts": "greedy",
    "gamma": 3,
    "same_text": None,
    "counted_rounds": 90.0,
    "replayed_rounds": 88.0,
    "exact": None,
    "largest_z": 2.0,
}


def test_chance_is_allowed_for_and_no_more() -> None:
    """Largest |z| of five tests: over 4.26 once in 10,000 correct runs."""
    assert not engine_findings([ROW, ROW | {"largest_z": 4.2}]).failures
    (failure,) = engine_findings([ROW | {"largest_z": 4.5}]).failures
    assert "largest z 4.5 where 4.3 is allowed" in failure


test_checks_refused = refuses(
    (lambda: specsim.EngineCheck(requests=0), "requests must be a whole number >= 1, got 0"),
    (lambda: specsim.EngineCheck(method="ngram", lookup_min=0), "lookup_min must be"),
    (lambda: specsim.EngineCheck(lookup_max=3), "lookup_max goes with method ngram"),
    (
        lambda: specsim.EngineCheck(method="ngram", drafts="probabilistic"),
        "drafts must be greedy with method ngram",
    ),
    (
        lambda: specsim.EngineCheck(method="ngram", lookup_max=3, lookup_min=5),
        r"lookup_min must be .* in \[1, 3\], got 5",
    ),
)


def test_lookups_are_checked_at_temperature_0_alone(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="temperature must be 0 with method ngram"):
        specsim.validate(write(tmp_path), specsim.EngineCheck(method="ngram"))
