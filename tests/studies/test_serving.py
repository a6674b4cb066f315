"""The study of an engine under load, of an engine that is the simulator itself."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import specsim
from calibrate.engine.client import EngineClient, EngineError
from calibrate.engine.servers import Servers
from specsim.api.serving_setup import SetUpWords, set_up
from specsim.batching.source import Source
from specsim.checkpoint import Checkpoint
from specsim.counts.file import (
    SCHEMA,
    VERSION,
    AcceptanceFile,
    CountedRounds,
    TimedPrompt,
    TimedStep,
    TimedStreamedStep,
    TimedStreams,
    read_acceptance,
    write_acceptance,
)
from specsim.counts.file import Source as ReadFile
from specsim.files import file_digest
from specsim.profiles import read_profile
from specsim.serving import Requests
from specsim.serving.service import serve_requests
from studies.common.measured import Measured
from studies.common.study import Study, Tables, where
from studies.common.write import load, write
from studies.serving import measure, settings
from studies.serving import tables as made
from studies.serving.capacity import plain_capacity
from studies.serving.files import LoadFiles
from studies.serving.page import SHIPPED
from studies.serving.settings import SETTINGS, SMALL_CACHE, Setting
from studies.serving.simulated import served
from tests.support.pages import sentences
from tests.support.profiles import write as write_profile

ALPHA, ROUNDS = 0.6, 100_000.0
PASSES = range(settings.PASSES)
# Batches of steps under load.
_LOADED = (1, 2, 3, 4, 6, 8, 12, 16)


def write_timed(path: Path, slower: float = 1.0) -> None:
    """Steps of 10 ms, 2 ms a draft and 0.5 ms a request; prompts of 2 ms and 30 us a token more;
    4 ms of a request outside of steps.
    """
    gammas = (0, *settings.GAMMAS)

    def step_s(gamma: int, batch: int) -> float:
        return slower * (0.01 + 0.002 * gamma + 0.0005 * batch)

    counts = []
    for gamma in settings.GAMMAS:
        reached = [ROUNDS * ALPHA**place for place in range(1, gamma + 1)]
        counts.append(CountedRounds(ROUNDS, sum(reached), gamma, gamma * ROUNDS, reached))
    steps = [
        TimedStep(batch, step_s(gamma, batch), gamma, repeat=repeat, first_s=0.02, context=128)
        for gamma in gammas
        for batch in (1, 4, 8, 16)
        for repeat in (0, 1)
    ]
    prompts = []
    for gamma in gammas:
        for tokens in (16, 256):
            seconds = step_s(gamma, 1) + slower * (0.002 + 3e-5 * tokens)
            prompts.append(TimedPrompt(gamma, tokens, seconds, seconds + slower * 0.004))
    streamed = []
    for gamma in gammas:
        alike = [TimedStreamedStep(batch, step_s(gamma, batch), steps=100) for batch in _LOADED]
        for tokens in (16, 256):
            seconds = step_s(gamma, 2) + slower * (0.002 + 3e-5 * tokens)
            alike.append(TimedStreamedStep(1, seconds, prompts=1, prompt_tokens=tokens))
        streamed.append(TimedStreams(gamma, alike, slower * 0.004, requests=100))
    file = AcceptanceFile(
        schema=SCHEMA,
        version=VERSION,
        created="2026-01-01T00:00:00+00:00",
        specsim="0",
        engine="vllm",
        acceptance_law="greedy-drafts",
        temperature=0.0,
        method="draft_model",
        counts=counts,
        lengths=[],
        steps=steps,
        sources=[ReadFile("x", "0" * 64, ["x"])],
        notes=[],
        prompts=prompts,
        streamed=streamed,
    )
    write_acceptance(file, path)


def serve(
    files: LoadFiles, setting: Setting, rate: float, slower: float, number: int
) -> dict[str, Any]:
    """What a client of the simulator would write down in a pass."""
    timed = files.profile.with_name("slower.json")
    write_timed(timed, slower)
    random = np.random.default_rng([3, number, list(settings.RATES).index(setting.rate)])
    n = settings.REQUESTS[setting.rate]
    requests = Requests(
        np.cumsum(random.exponential(1 / rate, n)),
        random.integers(*settings.PROMPTS, n),
        random.integers(*settings.OUTPUTS, n),
    )
    blocks = setting.drafting.blocks or 10_000
    schedule = list(setting.drafting.schedule)
    words = SetUpWords(schedule or None, Source(profile=timed), engine=settings.engine(blocks))
    setup = set_up(words, requests).setup
    served = serve_requests(setup, requests, seed=99 + number, keep=("steps", "rounds"))
    times = served.times
    order = np.argsort(times.itl_request, kind="stable")
    cuts = np.searchsorted(times.itl_request[order], np.arange(1, n))
    return {
        "request_rate": rate,
        "completed": n,
        "input_lens": requests.prompt_tokens.tolist(),
        "output_lens": requests.output_tokens.tolist(),
        "start_times": (100 + requests.arrival_s).tolist(),
        "ttfts": times.ttft_s.tolist(),
        "itls": [each.tolist() for each in np.split(times.itl_s[order], cuts)],
        "specsim": {
            "created": f"2026-01-01T0{number}:00:00+00:00",
            "timed_sha256": file_digest(files.timed(number)),
            "preemptions": float(served.each("preemptions").sum()),
            "num_gpu_blocks": blocks,
            "block_size": settings.BLOCK_TOKENS,
        },
    }


# How long everything takes from pass to pass, on a machine that drifts.
_DRIFTS = tuple(share * each for share in (1.0, 0.97) for each in (1.0, 1.2, 0.9, 1.1))


def measured(folder: Path, slower: float = 1.0) -> Measured:
    """As timed before each pass, but for what steps under load take longer."""
    files = LoadFiles(write_profile(folder))
    for number, drift in enumerate(_DRIFTS):
        write_timed(files.timed(number), drift)
    files.run(SETTINGS[0], 0).parent.mkdir(parents=True)
    outputs = np.random.default_rng(1).integers(*settings.OUTPUTS, 200).tolist()
    rows = [json.dumps({"prompt": "x", "output_tokens": n}) for n in outputs]
    files.load.write_text(measure._load())
    for number, drift in enumerate(_DRIFTS):
        files.requests(number).write_text("\n".join(rows))
        rates = measure._rates(files, number)
        for setting in settings.SETTINGS:
            found = serve(files, setting, rates[setting.rate], drift * slower, number)
            files.run(setting, number).write_text(json.dumps(found))
    return Measured.at(files.profile)


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    return measured(tmp_path_factory.mktemp("right"))


@pytest.fixture(scope="module")
def tables(right: Measured) -> Tables:
    return load("serving").tables(right)


def test_an_engine_that_does_as_predicted_is_met(
    right: Measured, tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = load("serving")
    # 23 settings, 3 latencies, 4 figures.
    assert len(tables["latencies"]) == len(SETTINGS) * 3 * 4
    plain = where(tables["latencies"], drafts="0")
    assert len(plain) == 4 * 12
    # The log of a client begins with the first arrival, and keeps a hundredth of a millisecond.
    assert max(abs(row["relative_error"]) for row in plain) < 1e-3
    errors = {row["figure"]: row for row in tables["errors"]}
    for figure in ("ttft mean", "tpot mean", "e2e mean", "tokens per second, saturated"):
        assert errors[figure]["reached"], errors[figure]
    assert errors["preemptions"]["settings"] == 3
    told = [(row["pass"], row["load"]) for row in tables["setup"]]
    assert told == [(number, rate) for number in PASSES for rate in settings.rates_of(number)]
    assert all(row["same_file"] for row in tables["setup"])
    assert len({row["timed_sha256"] for row in tables["setup"]}) == settings.PASSES
    for row in tables["steps"]:
        assert row["measured_tokens_per_round"] >= 1
        if row["drafts"] == "0":
            assert row["predicted_tokens_per_round"] == row["measured_tokens_per_round"] == 1
        if row["cache"] == "small" or ":" in row["drafts"]:
            assert row["longer"] is row["frontend_ms"] is None
        else:
            assert abs(row["longer"]) < 0.01
            if row["load"] == "light":
                # A mean of 600, of whose waits for the end of a step 3.3 ms are by chance: one in
                # 100,000 is further off.
                assert row["frontend_ms"] == pytest.approx(row["timed_frontend_ms"], abs=0.6)
            by_pass = [float(each) for each in row["longer_by_pass"].split(",")]
            assert by_pass == pytest.approx([row["longer"]] * settings.PASSES, abs=0.01)
            assert row["steps"] > 500
    for small in where(tables["totals"], cache="small"):
        # Five runs, against the mean over runs with other luck.
        seen = small["measured_preemptions"]
        assert seen > 40
        assert small["predicted_preemptions"] == pytest.approx(seen, rel=0.3)
    judged = where(tables["orders"], apart=True)
    assert len(judged) > 10
    assert sum(row["same_order"] for row in judged) > 0.9 * len(judged)
    # Worked out once for all.
    monkeypatch.setattr(Study, "tables", lambda *_: tables)
    write("serving", right, tmp_path, "typed")
    text = (tmp_path / "serving.md").read_text()
    assert "pairs of draft lengths that the measurement tells apart" in text
    assert (tmp_path / "serving-latency_by_rate.png").stat().st_size > 5000
    said = [each for part in study.opening(tables) for each in sentences(part)]
    assert [each for each in said if len(each.split()) > 45] == []


# What steps under load take, over what was timed.
_SLOWER = 1.1


@pytest.mark.long
def test_a_slower_engine_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A percentile of few requests is that of one or two, whose first step may be another one.
    monkeypatch.setattr(settings, "REQUESTS", dict.fromkeys(settings.RATES, 400))
    tables = load("serving").tables(measured(tmp_path, _SLOWER))
    errors = {row["figure"]: row for row in tables["errors"]}
    assert errors["tpot mean"]["mean_error"] < -0.08
    assert not errors["tpot mean"]["reached"]
    # Steps took as much longer, and nothing else is wrong.
    assert errors["tpot mean"]["median_with_own_steps"] < 0.02
    plain = where(tables["latencies"], drafts="0")
    assert max(abs(row["error_with_own_steps"]) for row in plain) < 0.01
    tpot = where(plain, latency="tpot")
    assert max(abs(row["error_with_own_steps"]) for row in tpot) < 1e-3
    longer = [row["longer"] for row in tables["steps"] if row["longer"] is not None]
    assert longer == pytest.approx([0.1] * 16, abs=0.01)
    # Rates are shares of what plain decoding serves, so that is surely saturated.
    (full,) = where(tables["totals"], drafts="0", load="saturated")
    assert full["relative_error"] > 0.08
    words = load("serving").opening(tables)[2]
    assert words.startswith("Not within what was to be reached: ")
    assert "tpot mean" in words


def test_capacity_is_that_of_full_steps(tmp_path: Path) -> None:
    """16 requests a step of 18 ms; prompts add 3.8 ms each, and the last steps are emptier."""
    write_timed(tmp_path / "t.json")
    found = plain_capacity(tmp_path / "t.json", np.full(800, 51))
    step_s = 0.01 + 16 * 0.0005
    alone = 16 / (50 * step_s + 16 * (0.002 + 72 * 3e-5))
    assert found == pytest.approx(alone, rel=0.06)
    files = LoadFiles(tmp_path / "profile.json")
    files.folder.mkdir()
    for number, slower in enumerate((1.0, 1.25)):
        write_timed(files.timed(number), slower)
        files.requests(number).write_text('{"prompt": "x", "output_tokens": 51}\n' * 800)
        rates = {name: share * found / slower for name, share in settings.RATES.items()}
        assert measure._rates(files, number) == pytest.approx(rates, rel=0.01)


def test_a_timing_that_tells_no_steps_under_load_is_to_be_made_again(tmp_path: Path) -> None:
    files = LoadFiles(tmp_path / "profile.json")
    files.folder.mkdir()
    files.requests(0).write_text('{"prompt": "x", "output_tokens": 51}\n')
    write_timed(files.timed(0))
    told = read_acceptance(files.timed(0))
    write_acceptance(msgspec.structs.replace(told, streamed=[]), files.timed(0))
    with pytest.raises(EngineError, match="does not tell how long steps under load take"):
        measure._rates(files, 0)
    assert not measure._is_of_now(files.timed(0))


def test_a_timing_of_a_while_ago_is_made_anew(tmp_path: Path) -> None:
    timed = tmp_path / "t.json"
    assert not measure._is_of_now(timed)
    write_timed(timed)
    told = read_acceptance(timed)
    for minutes, is_of_now in ((10, True), (70, False)):
        created = (datetime.now(UTC) - timedelta(minutes=minutes)).isoformat(timespec="seconds")
        write_acceptance(msgspec.structs.replace(told, created=created), timed)
        assert measure._is_of_now(timed) == is_of_now


def test_steps_are_timed_on_servers_like_those_under_load() -> None:
    """But for the size of the cache, and for the draft length."""
    profile = read_profile(SHIPPED)
    program = Path(sys.executable)
    check = replace(LoadFiles(SHIPPED).timing.check, engine_bin=program)
    (timed,) = Servers.of(profile, check, (2,)).launches.values()
    loaded = measure._launch(program, profile, SMALL_CACHE)
    cache = ("--num-gpu-blocks-override", "18")
    assert loaded == replace(timed, more=(*timed.more, *cache), speculative=loaded.speculative)
    assert timed.speculative is not None
    assert loaded.speculative == {
        name: timed.speculative[name] for name in ("method", "model", "num_speculative_tokens")
    }


def test_servers_are_started_as_they_are_simulated() -> None:
    names = [each.name for each in SETTINGS]
    assert len(set(names)) == len(names) == 23
    assert settings.fixed(0).speculative("d") is None
    assert settings.fixed(2).speculative("d") == {
        "method": "draft_model",
        "model": "d",
        "num_speculative_tokens": 2,
    }
    drafting = next(each for each in settings.DRAFTINGS if each.name == "schedule")
    said = drafting.speculative("d")
    assert said is not None
    assert said["num_speculative_tokens"] == 4
    ranges = said["num_speculative_tokens_per_batch_size"]
    assert ranges == [[1, 2, 4], [3, 8, 2], [9, 16, 1]]
    assert [drafting.policy.gammas(16)[each] for each in (1, 3, 16)] == [4, 2, 1]
    assert replace(SMALL_CACHE, blocks=None).policy == settings.fixed(2).policy


METRICS = 'vllm:cache_config_info{block_size="32",enable="x",num_gpu_blocks="70"} 1.0\n'


def test_what_the_server_says_of_its_cache() -> None:
    assert measure._setting(METRICS, "num_gpu_blocks") == 70
    assert measure._setting(METRICS, "block_size") == 32
    with pytest.raises(EngineError, match="does not tell cpu_blocks"):
        measure._setting(METRICS, "cpu_blocks")


def test_another_file_of_step_times_is_no_prediction_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "SETTINGS", SETTINGS[:8])
    files = LoadFiles(measured(tmp_path).path)
    found = served(files)
    write_timed(files.timed(1), 1.3)
    same = {(row["pass"], row["same_file"]) for row in made.setup(files, found)}
    assert same == {(number, number != 1) for number in PASSES}
    # Nothing is left to be served in that pass, and then something is.
    assert measure._waiting(files, 1) == []
    full = SETTINGS[3]
    files.run(full, 1).unlink()
    with pytest.raises(EngineError, match=r"vllm-1\.json is another file than when k0-light was"):
        measure._waiting(files, 1)
    write_timed(files.timed(1), _DRIFTS[1])
    assert measure._waiting(files, 1) == [full]


def test_simulations_that_were_killed_leave_no_file_behind_the_next_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Steps of a load are known of all draft lengths alone.
    some = [each for each in SETTINGS if each.rate == "half"][:4]
    monkeypatch.setattr(settings, "SETTINGS", some)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    files = LoadFiles(measured(tmp_path).path)

    def killed(*given: Any, **named: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(specsim, "validate_serving", killed)
        with pytest.raises(KeyboardInterrupt):
            served(files)
    assert list(temporary.iterdir())
    assert served(files)
    assert not list(temporary.iterdir())


def test_half_a_timing_of_long_ago_is_not_gone_on_with(tmp_path: Path) -> None:
    files = LoadFiles(tmp_path / "profile.json")
    names = ("profile.vllm-1", "profile.vllm-2", "other")
    old, new, of_others = (tmp_path / f".{name}.json.{1:012x}.work" for name in names)
    for each in (old, new, of_others):
        each.mkdir()
        (each / "repeat-0.json").write_text("[]")
    hours_ago = time.time() - 3 * 3600
    for each in (old, of_others):
        for path in (each / "repeat-0.json", each):
            os.utime(path, (hours_ago, hours_ago))
    nobody: Any = None
    checkpoint = Checkpoint.beside(files.folder, "serving")
    measure._passes(files, [], nobody, checkpoint, lambda *_: None)
    checkpoint.done()
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted([new.name, of_others.name])


def test_a_run_that_was_killed_behind_the_last_it_served_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = [each for each in SETTINGS if each.rate == "half"][:2]
    monkeypatch.setattr(settings, "SETTINGS", some)
    files = LoadFiles(measured(tmp_path).path)
    there = sorted(each.name for each in tmp_path.iterdir())
    Checkpoint.beside(files.folder, "serving").replace_json("begun.json", "a while ago")
    assert sorted(each.name for each in tmp_path.iterdir()) != there
    measure.measure(files.profile, tmp_path)  # which starts no server
    assert sorted(each.name for each in tmp_path.iterdir()) == there


def test_a_pass_serves_every_setting_once_rate_by_rate(tmp_path: Path) -> None:
    files = LoadFiles(tmp_path / "profile.json")
    for number in PASSES:
        waiting = measure._waiting(files, number)
        assert len(waiting) == len(SETTINGS)
        assert set(waiting) == set(SETTINGS)
        assert list(dict.fromkeys(each.rate for each in waiting)) == settings.rates_of(number)


def test_places_are_no_rates_own() -> None:
    for rate in settings.RATES:
        places = [settings.rates_of(number).index(rate) for number in PASSES]
        assert sorted(places) == sorted(list(range(len(settings.RATES))) * 2)
    assert sum(map(settings.swapped, PASSES)) == settings.PASSES / 2


def test_texts_of_the_profile_are_spread_over_all() -> None:
    chosen = measure._evenly(256, 656)
    assert sum(chosen) == 256
    for first in range(0, 640, 41):
        assert sum(chosen[first : first + 41]) == 16
    assert measure._evenly(0, 3) == [False] * 3
    assert measure._evenly(3, 3) == [True] * 3


def test_servers_change_places() -> None:
    timed = {gamma: EngineClient(f"http://timed:{gamma}") for gamma in (0, *settings.GAMMAS)}
    loaded = {each: EngineClient(f"http://{each.name}:1") for each in settings.DRAFTINGS}
    others, under_load = measure._exchanged(timed, loaded)
    assert all(others[gamma] is loaded[settings.fixed(gamma)] for gamma in timed)
    assert all(under_load[settings.fixed(gamma)] is timed[gamma] for gamma in timed)
    assert under_load.keys() == loaded.keys()
    assert under_load[SMALL_CACHE] is loaded[SMALL_CACHE]
