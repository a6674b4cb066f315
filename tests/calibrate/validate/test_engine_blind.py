"""The steps of an engine are timed, and the speedups predicted of them judged, on servers that
replay a trace.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import specsim
from calibrate.engine.client import EngineClient
from calibrate.engine.servers import Servers
from specsim.api import calibrate as calibrated
from specsim.api.engine_timing import awaits_timing
from specsim.checks import InvalidArgumentError, UnsupportedError
from specsim.counts.file import (
    PROFILE_SOURCE,
    SCHEMA,
    VERSION,
    AcceptanceFile,
    Source,
    read_acceptance,
    timed_step,
    write_acceptance,
)
from specsim.counts.prompt_costs import PromptCosts
from specsim.counts.steps import StepTime
from specsim.counts.streamed_costs import StreamedCosts
from specsim.counts.streams import Stream
from specsim.files import FileError, file_digest
from specsim.profiles import read_profile
from tests.support.command_line import fail, run
from tests.support.engine_server import serving
from tests.support.replayed_engine import LIMIT, REQUESTS, engine
from tests.support.streamed import PROMPT_S, REQUEST_S, STEP_S, TOKEN_S, served

FRONTEND_S = 0.004


def calibrating(family: dict[str, Path], prompts: Path, out: Path, *more: str) -> list[str]:
    """What is typed to calibrate the tiny pair at temperature 0 and then time vLLM."""
    return [
        *("calibrate", "--target", str(family["target"]), "--draft", str(family["draft"])),
        *("--prompts", str(prompts), "--requests", f"{REQUESTS}", "--device", "cpu"),
        *("--threads", "1", "--max-new-tokens", f"{LIMIT}", "--repeats", "2"),
        *("--temperature", "0", "--engine", "vllm", "--batch", "1,2", "--out", str(out), *more),
    ]


@contextmanager
def all_serving(
    profile: Path, prompts: Path, gammas: Sequence[int], **changes: Any
) -> Iterator[dict[int, Any]]:
    """Clients of a server for each draft length, whose rounds take a thousandth of a second."""
    with ExitStack() as stack:
        states = {g: engine(profile, prompts, g, step_s=1e-3, **changes) for g in gammas}
        yield {g: EngineClient(stack.enter_context(serving(s))) for g, s in states.items()}


def timed_by_hand(profile: Path, prompts: Path, folder: Path, plain_s: float = 1e-3) -> Any:
    """A copy of the profile, and a check of it with steps that no engine took."""
    own, timed = folder / "own/tiny.json", folder / "timed.json"
    if not own.is_file():
        others = shutil.ignore_patterns("*.vllm*", ".*")
        shutil.copytree(profile.parent, own.parent, ignore=others)
    steps = [
        StepTime(gamma, batch, plain_s * (1 + 0.2 * gamma), repeat=repeat, first_s=plain_s)
        for repeat in (0, 1)
        for gamma in (0, 1, 2, 3)
        for batch in (1, 2)
    ]
    written = AcceptanceFile(
        schema=SCHEMA,
        version=VERSION,
        created="",
        specsim=specsim.__version__,
        engine="vllm",
        counts=[],
        lengths=[],
        steps=[timed_step(each) for each in steps],
        sources=[Source(str(own), file_digest(own), [PROFILE_SOURCE])],
        notes=[],
        temperature=0.0,
    )
    write_acceptance(written, timed)
    check = specsim.EngineBlindCheck(
        gamma=(2, 3), passes=2, timed=timed, prompts=prompts, engine_bin=Path(sys.executable)
    )
    return own, check


@pytest.fixture(autouse=True)
def loads_are_made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """What clients of a server see, without a clock; one load after another."""
    now = 0.0

    def stream(
        client: EngineClient, prompts: Any, tokens: Any, sampling: Any, together: int, waits: Any
    ) -> list[Stream]:
        nonlocal now
        # Up to 30 ms apart: nobody waits here for a client to be free, so that as many decode
        # together however short its waits are.
        sent = (now + np.cumsum(0.03 * np.array(waits) / max(waits))).tolist()
        now += 100.0
        lengths = [len(prompt.split()) for prompt in prompts]
        return served(sent, lengths, tokens, FRONTEND_S)[0]

    monkeypatch.setattr("calibrate.engine.streams.stream", stream)


def test_servers_that_run_are_timed_again_and_again(
    profile: Path, prompts: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    started: list[tuple[int, ...]] = []

    def clients(servers: Servers) -> Any:
        started.append(servers.gammas)
        return all_serving(profile, prompts, servers.gammas)

    monkeypatch.setattr(Servers, "clients", clients)
    program = Path(sys.executable)
    timing = specsim.EngineTiming(
        gamma=(1, 3), batch=(1, 4), repeats=2, prompts=prompts, engine_bin=program
    )
    files = [tmp_path / f"timed-{number}.json" for number in range(2)]
    with specsim.engine_servers(profile, timing) as servers:
        for file in files:
            specsim.calibrate_engine(profile, file, timing, servers=servers)
        with pytest.raises(
            InvalidArgumentError, match=r"servers must be of .* 0, 1, 2 of .* 0, 1, 3"
        ):
            specsim.calibrate_engine(
                profile, files[0], replace(timing, gamma=(1, 2)), servers=servers
            )
    assert started == [(0, 1, 3)]
    first, second = (read_acceptance(file) for file in files)
    assert [each.repeat for each in first.steps] == [each.repeat for each in second.steps]
    assert first.counts == second.counts
    assert first.steps != second.steps


def test_an_engine_is_timed_and_its_speedups_are_predicted_before_it_is_measured(
    profile: Path,
    prompts: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    timed, file = (profile.with_name(f"tiny.vllm.{end}") for end in ("json", "predicted.json"))
    fixed: list[bool] = []

    def clients(servers: Servers) -> Any:
        fixed.append(file.is_file())
        for launch in servers.launches.values():
            words = launch.command(80)
            assert words[words.index("--block-size") + 1] == "32"
        return all_serving(profile, prompts, servers.gammas)

    monkeypatch.setattr(Servers, "clients", clients)
    program = Path(sys.executable)
    deployed: Any = {"engine_bin": program, "engine_args": ("--block-size", "32")}
    timing = specsim.EngineTiming(
        gamma=(1, 3), batch=(1, 4), repeats=2, prompts=prompts, **deployed
    )
    found = specsim.calibrate_engine(profile, timing=timing)
    assert found.path == timed
    assert [(row["batch"], row["gamma"]) for row in found.rows()] == [
        *((1, 0), (1, 1), (1, 3)),
        *((4, 0), (4, 1), (4, 3)),
    ]
    kept = read_acceptance(timed)
    assert tuple(kept.step_times()) == found.steps
    assert len(kept.steps) == 2 * 3 * 2
    # Three prompts of three lengths at three draft lengths, twice; 2 us a token.
    assert tuple(kept.prompt_times()) == found.prompts
    assert len(found.prompts) == 3 * 3 * 3 * 2
    costs = PromptCosts(found.prompts)
    assert costs.seconds(3, 100) - costs.seconds(3, 50) == pytest.approx(50 * 2e-6)
    assert costs.frontend_s > 0
    # What clients see of a load is made up.
    assert tuple(kept.streamed_steps()) == found.streamed
    assert {(each.gamma, each.repeat) for each in found.streamed} == {
        (gamma, repeat) for gamma in (0, 1, 3) for repeat in (0, 1)
    }
    loaded = StreamedCosts(found.streamed)
    assert loaded.frontend_s == pytest.approx(FRONTEND_S, abs=0.002)
    for law in loaded.laws.values():
        assert law.step_s == pytest.approx(STEP_S + REQUEST_S * np.array(law.batches))
        assert (law.per_prompt_s, law.per_token_s) == pytest.approx((PROMPT_S, TOKEN_S))
    setup: Any = {
        "profile": timed,
        "engine": "vllm:num_gpu_blocks=100,max_num_seqs=4,enable_prefix_caching=no",
    }
    load = specsim.workload(rate=5, requests=50, prompt=20, output=10)
    served = specsim.serve(load, gamma=3, **setup)
    plan = specsim.plan(load, slo="tpot_p99=1", **setup)
    assert {row["gamma"] for row in plan.rows()} >= {"off", "1", "3"}
    # Every step costs what it did under load.
    model = served.setup.step_model
    assert model.frontend_s == loaded.frontend_s
    assert served.figures["ttft_mean"].best > loaded.laws[3].step_s[0] + loaded.frontend_s
    # The profile's text stands beside; elsewhere the engine's counts are all that is known.
    assert served.setup.acceptance is not None
    assert served.setup.acceptance.label == "trace of the profile"
    shutil.copy(timed, tmp_path / "elsewhere.json")
    alone = specsim.serve(load, gamma=3, **setup | {"profile": tmp_path / "elsewhere.json"})
    assert alone.setup.acceptance is not None
    assert alone.setup.acceptance.label == "law"
    assert [each for each in alone.warnings if "tiny.json, is not beside" in each]
    assert not [each for each in served.warnings if "is not beside" in each]
    # Every request once, as replayed: none of the warnings says otherwise.
    assert [each.gamma for each in kept.draft_counts()] == [1, 3]
    assert not [each for each in found.warnings if "replayed" in each]
    assert [each for each in found.warnings if "two draft lengths lie on any line" in each]
    assert specsim.optimize(profile=timed, load=specsim.Load(batches=(1, 4))).rows()

    check = specsim.EngineBlindCheck(gamma=(2, 3), passes=2, prompts=prompts, **deployed)
    verdict = specsim.validate_engine(profile, check)
    # Servers are started for each of two passes.
    assert fixed == [False, True, True]
    assert verdict.sha256 == file_digest(file)
    assert [(row["batch"], row["gamma"]) for row in verdict.rows()] == [
        *((1, 2), (1, 3)),
        *((4, 2), (4, 3)),
    ]
    for row in verdict.rows():
        assert row["counted_rounds"] == row["replayed_rounds"] > 0
        assert row["predicted_low"] < row["predicted_speedup"] < row["predicted_high"]
        assert row["passes"] == 2
    assert "rounds are as replayed in 4 of 4 settings" in verdict.sentences()
    assert not list(profile.parent.glob(".*.work"))
    words = [
        *("--blind", "--engine", "vllm", "--engine-bin", sys.executable, "--prompts", str(prompts)),
        *("--gamma", "2", "--passes", "2", "--median-tolerance", "1e-9", "--format", "json"),
        *("--engine-args", "--block-size 32"),
    ]
    code, out, _ = run(capsys, "validate", str(profile), *words)
    answer = json.loads(out)["answer"]
    assert code == 1
    assert answer["failures"] == ["the median error is over the tolerance of 1e-09"]
    assert [row["gamma"] for row in answer["rows"]] == [2, 2]
    # What was predicted before is judged again, and not what is said today.
    assert file_digest(file) == verdict.sha256
    assert json.loads(file.read_text())["created"]
    refused = fail(capsys, "validate", str(profile), *words, "--url", "http://localhost:1")
    assert "--url does not go with --blind --engine" in refused
    refused = fail(capsys, "validate", str(profile), *words, "--starts", "3")
    assert "starts must be a whole number in [1, 2], got 3" in refused
    refused = fail(capsys, "validate", str(profile), "--blind", "--starts", "1")
    assert "--starts goes with --blind --engine" in refused


def test_what_was_predicted_of_an_engine_stays_and_other_draft_lengths_are_added(
    profile: Path, prompts: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own, check = timed_by_hand(profile, prompts, tmp_path)
    monkeypatch.setattr(
        Servers, "clients", lambda servers: all_serving(own, prompts, servers.gammas)
    )

    def predicted(gamma: tuple[int, ...]) -> dict[tuple[int, int], float]:
        verdict = specsim.validate_engine(own, replace(check, gamma=gamma))
        assert (verdict.prediction, verdict.sha256) == (file, file_digest(file))
        return {(row["batch"], row["gamma"]): row["predicted_speedup"] for row in verdict.rows()}

    file = own.with_name("tiny.vllm.predicted.json")
    before = predicted((2, 3))
    content = json.loads(file.read_text())
    content["speedups"][0]["speedup"] = [6.0, 7.0, 8.0]
    content["created"] = "before"
    file.write_text(json.dumps(content))
    again = predicted((1, 2, 3))
    assert again == before | {(1, 1): again[1, 1], (1, 2): 7.0, (2, 1): again[2, 1]}
    added = json.loads(file.read_text())
    assert added["created"] == "before"
    assert len(added["speedups"]) == 6
    assert all(each in added["speedups"] for each in content["speedups"])
    # Of other step times it says nothing.
    timed_by_hand(profile, prompts, tmp_path, plain_s=2e-3)
    of_two = {at: speedup for at, speedup in before.items() if at[1] == 2}
    assert predicted((2,)) == pytest.approx(of_two)
    assert len(json.loads(file.read_text())["speedups"]) == 2
    # Nor of other starts, of which it is not made anew by itself.
    with pytest.raises(FileError, match=r"is of 2 starts, got 1; ask for as many"):
        specsim.validate_engine(own, replace(check, gamma=(2,), starts=1))
    said = json.loads(file.read_text())
    del said["starts"]  # as files of before are
    file.write_text(json.dumps(said))
    assert predicted((2,)) == pytest.approx(of_two)
    assert json.loads(file.read_text()) == said
    # What was said before is what is judged: it is not made anew because it cannot be read.
    for damaged in (file.read_bytes()[:-9], b"\xff{}"):
        file.write_bytes(damaged)
        with pytest.raises(FileError, match=r"what was predicted before cannot be read .*move it"):
            predicted((2,))
        assert file.read_bytes() == damaged


def test_passes_of_an_engine_are_kept_while_other_draft_lengths_are_checked(
    profile: Path, prompts: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own, check = timed_by_hand(profile, prompts, tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    started: list[tuple[int, ...]] = []

    def clients(servers: Servers) -> Any:
        started.append(servers.gammas)
        return all_serving(own, prompts, servers.gammas)

    def killed(activity: str, done: int, total: int) -> None:
        if activity == "decoding" and done == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(Servers, "clients", clients)
    with suppress(KeyboardInterrupt):
        specsim.validate_engine(own, check, progress=killed)
    specsim.validate_engine(own, replace(check, gamma=(1, 3)))
    verdict = specsim.validate_engine(own, check)
    # Two starts of servers each, and of the first check the second one alone again.
    assert started == [(0, 2, 3), (0, 1, 3), (0, 1, 3), (0, 2, 3)]
    assert any("went on with what was decoded before" in each for each in verdict.warnings)


def test_an_engine_is_asked_for_what_was_timed_and_what_it_can_read(
    profile: Path, prompts: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Before a server is started."""
    own, check = timed_by_hand(profile, prompts, tmp_path)

    def clients(servers: Servers) -> Any:
        raise AssertionError

    monkeypatch.setattr(Servers, "clients", clients)
    for batch in (3, 64):
        with pytest.raises(
            InvalidArgumentError, match=rf"batch .* must be .*\[1, 2\], got {batch}"
        ):
            specsim.validate_engine(own, replace(check, batch=(batch,)))
    short = ("--max-model-len", f"{LIMIT}")
    message = rf"--max-model-len must be >= \d+, the longest request .* got {LIMIT}"
    with pytest.raises(InvalidArgumentError, match=message):
        specsim.validate_engine(own, replace(check, engine_args=short))
    timing = specsim.EngineTiming(
        gamma=(1, 3), prompts=prompts, engine_bin=Path(sys.executable), engine_args=short
    )
    with pytest.raises(InvalidArgumentError, match=message):
        specsim.calibrate_engine(own, tmp_path / "new.json", timing)
    assert not (tmp_path / "new.json").exists()


@pytest.mark.parametrize("kind", [specsim.EngineTiming, specsim.EngineBlindCheck])
@pytest.mark.parametrize("batch", [(), (0,), (4, 4), (4, 1)])
def test_batches_of_an_engine_rise_from_1(kind: Any, batch: tuple[int, ...]) -> None:
    with pytest.raises(InvalidArgumentError, match="batch must"):
        kind(batch=batch)


def test_what_an_engine_does_otherwise_than_replayed_is_said(
    profile: Path, prompts: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Counters that have a round too many for each request, and answers in a single chunk."""

    def stream(
        client: EngineClient, prompts: Any, tokens: Any, sampling: Any, together: int, waits: Any
    ) -> list[Stream]:
        return [
            Stream(len(prompt.split()), wait, (wait + 0.1,), (count,))
            for prompt, count, wait in zip(prompts, tokens, waits, strict=True)
        ]

    monkeypatch.setattr("calibrate.engine.streams.stream", stream)
    monkeypatch.setattr(
        Servers,
        "clients",
        lambda servers: all_serving(profile, prompts, servers.gammas, miscounted=1),
    )
    timing = specsim.EngineTiming(
        gamma=(1, 3), batch=(1,), repeats=2, prompts=prompts, engine_bin=Path(sys.executable)
    )
    found = specsim.calibrate_engine(profile, tmp_path / "timed.json", timing)
    said = [each.partition(";")[0] for each in found.warnings if "replayed" in each]
    assert said == [
        f"draft length {each.gamma}: {each.rounds:g} rounds were counted, "
        f"{each.rounds - REQUESTS:g} replayed"
        for each in found.counts
    ]
    assert [each.gamma for each in found.counts] == [1, 3]
    (loads,) = (each for each in found.warnings if "under load" in each)
    assert loads.startswith("steps under load could not be told apart (no step without a prompt")
    assert not found.streamed
    kept = read_acceptance(found.path)
    assert not kept.streamed
    assert tuple(kept.notes) == found.warnings


@pytest.mark.parametrize("call", ["calibrate_engine", "validate_engine"])
def test_sets_of_an_engine_are_kept_for_that_engine_alone(
    call: str, profile: Path, prompts: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Killed behind the first repeat: what goes on with it has engines draw other random numbers,
    and another program, or the same one of another version, begins anew.
    """
    own, check = timed_by_hand(profile, prompts, tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    seeds: list[int] = []

    def clients(servers: Servers) -> Any:
        seeds.append(servers.launches[0].seed)
        return all_serving(own, prompts, servers.gammas)

    def killed(activity: str, done: int, total: int) -> None:
        if activity in ("timing", "decoding") and done:
            raise KeyboardInterrupt

    monkeypatch.setattr(Servers, "clients", clients)
    one, other = (tmp_path / name for name in ("one", "other"))
    for each in (one, other):
        (each / "bin").mkdir(parents=True)
        (each / "bin/vllm").touch()

    def begun(environment: Path) -> int:
        monkeypatch.setenv("ENGINE_VENV", str(environment))
        asked: Any = {"batch": (1,), "requests": 2, "seed": 5, "engine_bin": None}
        timing = specsim.EngineTiming(gamma=(1, 2), repeats=2, prompts=prompts, **asked)
        with suppress(KeyboardInterrupt):
            if call == "calibrate_engine":
                specsim.calibrate_engine(own, timing=timing, progress=killed)
            else:
                specsim.validate_engine(own, replace(check, starts=1, **asked), progress=killed)
        return seeds[-1]

    # Of seed 5; what is timed counts drafts before the first repeat.
    first, kept = (10_000, 2) if call == "calibrate_engine" else (11_000, 1)
    assert [begun(one), begun(other), begun(one)] == [first, first, first + kept]
    (one / "lib/python3.12/site-packages/vllm-0.33.0.dist-info").mkdir(parents=True)
    assert begun(one) == first


def test_above_temperature_0_an_engine_is_timed_by_the_texts_that_it_wrote(
    profile: Path, prompts: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """``LLM.generate`` whose texts are the trace's, with the drafts that greedy ones would be."""
    own, before = tmp_path / "tiny.json", read_profile(profile)
    models = specsim.Models(before.target.name, before.draft.name, device="cpu", threads=1)
    measurement = specsim.Measurement(
        prompts=prompts,
        temperature=(1.0,),
        requests=(REQUESTS,),
        max_new_tokens=LIMIT,
        gamma_max=4,
        repeats=2,
    )
    specsim.calibrate(own, models, measurement)
    started: list[Servers] = []

    def clients(servers: Servers) -> Any:
        started.append(servers)
        return all_serving(own, prompts, servers.gammas)

    monkeypatch.setattr(Servers, "clients", clients)
    asked: Any = {"api": "generate", "temperature": 1.0, "prompts": prompts}
    asked |= {"batch": (1, 4), "engine_bin": Path(sys.executable)}
    found = specsim.calibrate_engine(own, timing=specsim.EngineTiming(gamma=(1, 3), **asked))
    assert found.path == tmp_path / "tiny.vllm-generate-t1.json"
    kept = read_acceptance(found.path)
    assert (kept.temperature, kept.acceptance_law) == (1.0, "greedy-drafts")
    # Rounds of a thousandth of a second each, as many as both models say of the texts.
    seconds = [each.seconds for each in kept.step_times() if each.gamma and each.batch == 1]
    assert 0.8e-3 < np.median(seconds) < 3e-3
    with pytest.raises(
        InvalidArgumentError, match=r"temperature must be that of .*, which is 1, got 0"
    ):
        specsim.validate_engine(own, specsim.EngineBlindCheck(timed=found.path))
    unsaid = tmp_path / "unsaid.json"
    write_acceptance(msgspec.structs.replace(kept, temperature=None), unsaid)
    with pytest.raises(InvalidArgumentError, match=r"is not said .specsim read --temperature"):
        specsim.validate_engine(own, specsim.EngineBlindCheck(timed=unsaid))
    others = [Source("other.json", "0" * 64, [PROFILE_SOURCE])]
    write_acceptance(msgspec.structs.replace(kept, sources=others), unsaid)
    with pytest.raises(InvalidArgumentError, match=r"is of another profile than .*tiny.json"):
        specsim.validate_engine(own, specsim.EngineBlindCheck(**asked, timed=unsaid))
    with pytest.raises(InvalidArgumentError, match=r"law is greedy-drafts, got probabilistic"):
        specsim.validate_engine(own, specsim.EngineBlindCheck(**asked, drafts="probabilistic"))
    with pytest.raises(InvalidArgumentError, match=r"gamma must be in \[1, 4\] .*, got 0"):
        specsim.validate_engine(own, specsim.EngineBlindCheck(gamma=(0, 1), **asked))
    verdict = specsim.validate_engine(own, specsim.EngineBlindCheck(gamma=(2, 3), **asked))
    assert verdict.prediction == tmp_path / "tiny.vllm-generate-t1.predicted.json"
    assert {each.launches[0].api for each in started} == {"generate"}
    assert started[0].launches[0].seed != started[1].launches[0].seed
    for row in verdict.rows():
        assert row["temperature"] == 1.0
        # Six passes go twice or more over all requests, whose rounds are the drawn ones.
        assert row["counted_rounds"] == pytest.approx(row["replayed_rounds"], rel=1e-9)
        assert row["predicted_low"] < row["predicted_speedup"] < row["predicted_high"]
    assert any("from the replayed ones in the median" in each for each in verdict.sentences())


def test_a_command_that_was_killed_while_it_timed_the_engine_measures_nothing_else_again(
    tiny_family: dict[str, Path],
    prompts: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    out, program = tmp_path / "tiny.json", tmp_path / "bin/vllm"
    program.parent.mkdir()
    program.touch()
    monkeypatch.setenv("ENGINE_VENV", str(tmp_path))
    words = calibrating(tiny_family, prompts, out, "--gamma-max", "3")

    def killed(servers: Servers) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(Servers, "clients", killed)
    assert run(capsys, *words)[0] == 130
    written = out.read_bytes()
    monkeypatch.setattr(
        Servers, "clients", lambda servers: all_serving(out, prompts, servers.gammas)
    )
    code, _, err = run(capsys, *words)
    assert code == 0, err
    assert f"went on with {out}, which this command wrote before" in err
    assert out.read_bytes() == written
    timing = specsim.EngineTiming(batch=(1, 2), repeats=2, requests=REQUESTS, prompts=prompts)
    command = read_profile(out).command
    assert not awaits_timing(out, timing, command), "it is done: the same again is a new one"
    (tmp_path / "tiny.vllm.json").unlink()
    assert awaits_timing(out, timing, command)
    assert not awaits_timing(out, timing, command + " --seed 1")
    out.write_text("{}")
    assert not awaits_timing(out, timing, command), "what cannot be read is made anew"
    assert not list(tmp_path.glob(".*.work"))


def test_warnings_of_the_pair_stand_before_those_of_the_engine(
    tiny_family: dict[str, Path],
    prompts: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    out, measure = tmp_path / "tiny.json", calibrated.calibrate
    monkeypatch.setattr(
        calibrated,
        "calibrate",
        lambda *given, **named: replace(measure(*given, **named), warnings=("of the pair",)),
    )
    monkeypatch.setattr(
        Servers, "clients", lambda servers: all_serving(out, prompts, servers.gammas)
    )
    more = ("--gamma-max", "2", "--engine-bin", sys.executable, "--format", "json")
    code, found, err = run(capsys, *calibrating(tiny_family, prompts, out, *more))
    assert code == 0, err
    warnings = json.loads(found)["warnings"]
    assert warnings[0] == "of the pair"
    assert [each for each in warnings if "two draft lengths lie on any line" in each]


def test_drafts_that_an_engine_draws_unfiltered_are_not_timed_by_a_filtered_profile(
    profile: Path, prompts: Path, tmp_path: Path
) -> None:
    own, before = tmp_path / "tiny.json", read_profile(profile)
    models = specsim.Models(before.target.name, before.draft.name, device="cpu", threads=1)
    measurement = specsim.Measurement(
        prompts=prompts,
        temperature=(0.0, 1.0),
        top_p=0.9,
        requests=(2,),
        max_new_tokens=LIMIT,
        gamma_max=3,
        repeats=2,
    )
    specsim.calibrate(own, models, measurement)
    asked: Any = {"prompts": prompts, "engine_bin": Path(sys.executable), "temperature": 1.0}
    timing = specsim.EngineTiming(**asked, drafts="probabilistic")
    with pytest.raises(UnsupportedError, match="are drawn without top_k and top_p, and those of"):
        specsim.calibrate_engine(own, timing=timing)
    assert [each.name for each in tmp_path.glob("*.json")] == ["tiny.json"]


@pytest.mark.parametrize("kind", [specsim.EngineTiming, specsim.EngineBlindCheck])
def test_servers_are_told_of_the_profile_by_specsim_alone(kind: Any) -> None:
    of_an_entry = "--speculative-config.method", "--speculative_config.method=ngram", "-sc.method"
    words = "--max-num-seqs=8", "--max_num_seqs", "--speculative-config", "--port", "-sc"
    for word in (*words, *of_an_entry):
        with pytest.raises(InvalidArgumentError, match=f"must not name .*, got {word}$"):
            kind(engine_args=("--block-size", "32", word))
    for told in (("--max-model-len", "abc"), ("--max-model-len=1",), ("--max-model-len",)):
        with pytest.raises(InvalidArgumentError, match="--max-model-len must be"):
            kind(engine_args=told)
    with pytest.raises(InvalidArgumentError, match="they go with neither url nor api generate"):
        kind(api="generate", engine_args=("--block-size=32",))


@pytest.mark.parametrize(
    "words",
    [
        ("--max-model-len", "256"),
        ("--max-model-len=256",),
        ("--max_model_len", "256"),
        ("--max-model-len", "300", "--max-model-len", "256"),
    ],
)
def test_servers_may_read_less_than_their_models_do(words: tuple[str, ...]) -> None:
    timing = specsim.EngineTiming(engine_args=("--block-size", "32", *words))
    assert timing.check.context(512) == 256
    assert specsim.EngineTiming().check.context(512) == 512
    with pytest.raises(InvalidArgumentError, match=r"--max-model-len must be .*128\], got 256"):
        timing.check.context(128)
    # Prompts of a server that reads 131,072 tokens are no longer than those of many others.
    assert specsim.EngineTiming().prompt_lengths(131072) == (256, 1024, 4096)
    assert specsim.EngineTiming().prompt_lengths(512) == (16, 64, 256)


def test_an_engine_that_is_not_there_is_said_before_anything_is_measured(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "profile.json"
    typed = ("calibrate", "--draft", "embedded/small", "--out", str(out), "--engine", "vllm")
    said = fail(capsys, *typed, "--engine-bin", str(tmp_path / "vllm"))
    assert said.endswith("no such program; it is .engine/bin/vllm or so\n")
    assert not list(tmp_path.iterdir())
