"""Profiles and acceptance files that say something impossible: one rule broken in each, anywhere.

Every rule is broken at several random places with random values, which are the same every time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

import specsim
from specsim.counts.file import AcceptanceFileError, read_acceptance
from specsim.profiles import ProfileError, read_profile
from specsim.traces import Trace
from tests.support.mutations import SAMPLES
from tests.support.profiles import grid, overhead, write

Content = dict[str, Any]
Rule = Callable[[Content, Random], None]

TIMES = 5
RUNS = ("run_times", "grid")
HOST = ("overhead", "batch_overhead")


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    some = [row for row in grid() if row["batch"] in (1, 64)]
    folder = tmp_path_factory.mktemp("profile")
    return write(folder, grid=some, batch_overhead=overhead())


@pytest.fixture(scope="module")
def acceptance(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("acceptance") / "acceptance.json"
    specsim.read(SAMPLES / "vllm-bench-serve-mtp3.txt", temperature=1.0, out=path)
    return path


def changed(path: Path, change: Rule, seed: int) -> Path:
    """A changed file beside one, so that what it names lies there, too."""
    content = json.loads(path.read_text())
    change(content, Random(seed))
    other = path.with_name("changed.json")
    other.write_text(json.dumps(content))
    return other


def objects(value: Any) -> Iterator[Content]:
    if isinstance(value, dict):
        yield value
    if isinstance(value, (dict, list)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from objects(inner)


def same(best: float) -> dict[str, float]:
    return {"low": best, "best": best, "high": best}


def measured(content: Content) -> Content:
    found: Content = content["acceptance"][0]
    return found


def a_rate(content: Content, random: Random) -> Content:
    own = measured(content)
    found: Content = random.choice([own["alpha"], *own["survival"], *own["conditional"]])
    return found


def a_row(content: Content, random: Random, names: tuple[str, ...]) -> Content:
    found: Content = random.choice(content[random.choice(names)])
    return found


# --- rules of every file -----------------------------------------------------------------------


def unknown_field(content: Content, random: Random) -> None:
    random.choice([*objects(content)])[random.choice(("surprise", "", "Version"))] = 1


def another_type(content: Content, random: Random) -> None:
    place = random.choice([each for each in objects(content) if each])
    key = random.choice(list(place))
    place[key] = random.choice(([place[key]], {"value": place[key]}))


def another_version(content: Content, random: Random) -> None:
    content["version"] = random.choice((0, -1, 99, "3", None, 3.5, [3]))


# --- rules of profiles -------------------------------------------------------------------------


def field_is_absent(content: Content, random: Random) -> None:
    own = measured(content)
    places = (content["target"], content["hardware"], content["software"], own, own["trace"])
    rows = (a_row(content, random, RUNS), a_row(content, random, HOST), a_rate(content, random))
    place = random.choice((content, *places, *rows))
    del place[random.choice([key for key in place if key not in ("grid", "batch_overhead")])]


def interval_is_turned(content: Content, random: Random) -> None:
    rate = a_rate(content, random)
    rate["low"], rate["high"] = rate["high"] + random.uniform(0.01, 0.1), rate["low"]


def rate_is_outside_its_interval(content: Content, random: Random) -> None:
    rate = a_rate(content, random)
    rate["best"] += random.choice((-1, 1)) * random.uniform(0.01, 0.1)


def rate_is_no_share(content: Content, random: Random) -> None:
    beyond = random.uniform(0.01, 9)
    a_rate(content, random)[random.choice(("low", "best", "high"))] = random.choice(
        (-beyond, 1 + beyond)
    )


def survival_rises(content: Content, random: Random) -> None:
    survival, at = measured(content)["survival"], random.randrange(1, 4)
    survival[at] = same(survival[at - 1]["best"] + random.uniform(0.01, 0.1))


def end_of_survival_rises(content: Content, random: Random) -> None:
    survival, at = measured(content)["survival"], random.randrange(1, 4)
    survival[at]["high"] = survival[at - 1]["best"] + random.uniform(0.01, 0.1)


def survival_is_no_product(content: Content, random: Random) -> None:
    conditional = measured(content)["conditional"]
    at = random.randrange(4)
    conditional[at] = same(conditional[at]["best"] * random.uniform(0.5, 0.95))


def curves_are_of_unlike_length(content: Content, random: Random) -> None:
    curve = measured(content)[random.choice(("survival", "conditional"))]
    del curve[random.randrange(len(curve))]


def gamma_max_is_another(content: Content, random: Random) -> None:
    content["gamma_max"] = random.choice((1, 2, 3, 5, 9, 1000, 1001, 0, -4))


def tokens_that_nobody_has_room_for(content: Content, random: Random) -> None:
    own = measured(content)
    own["tokens"] = random.choice((random.randrange(20), 1001 + random.randrange(10**6)))


def requests_are_shorter_than_drafts(content: Content, random: Random) -> None:
    short = random.randrange(1, 4)
    measured(content).update(max_new_tokens=short, tokens=20 * short)


def one_request(content: Content, random: Random) -> None:
    measured(content).update(requests=random.choice((1, 0, -20)), tokens=20)


def negative_temperature(content: Content, random: Random) -> None:
    place = random.choice((measured(content)["sampling"], a_row(content, random, HOST)))
    place["temperature"] = -random.uniform(0.01, 2)


def entry_is_there_twice(content: Content, random: Random) -> None:
    name = random.choice((*RUNS, *HOST, "acceptance"))
    rows = content[name]
    again = json.loads(json.dumps(random.choice(rows)))
    if "seconds" in again:
        again["seconds"] = [seconds * 1.1 for seconds in again["seconds"]]
    rows.insert(random.randrange(len(rows) + 1), again)


def seconds_that_nothing_takes(content: Content, random: Random) -> None:
    row = a_row(content, random, (*RUNS, *HOST))
    at = random.randrange(len(row["seconds"]))
    row["seconds"][at] = random.choice((-random.random(), 3600 + 9 * random.random(), 1e300, "1"))


def run_in_no_time(content: Content, random: Random) -> None:
    row = a_row(content, random, RUNS)
    times = row[random.choice(("seconds", "plain"))]
    times[random.randrange(len(times))] = 0.0


def runs_without_their_plain_steps(content: Content, random: Random) -> None:
    row = a_row(content, random, RUNS)
    row[random.choice(("seconds", "plain"))].append(0.01)


def passes_that_were_none(content: Content, random: Random) -> None:
    row = a_row(content, random, (*RUNS, *HOST))
    count = len(row["seconds"])
    row["passes"] = random.choice(([10_000] * count, [-1] * count, [0] * (count + 1)))


def overhead_of_longer_drafts(content: Content, random: Random) -> None:
    a_row(content, random, HOST)["gamma"] = 5 + random.randrange(1000)


def alone_in_a_batch(content: Content, random: Random) -> None:
    a_row(content, random, ("run_times", "overhead"))["batch"] = random.randrange(2, 500)


def missing_and_there(content: Content, random: Random) -> None:
    row = a_row(content, random, ("grid",))
    where = {name: row[name] for name in ("batch", "context", "mode")}
    content["missing"] = [{**where, "reason": "out of memory"}]


def missing_twice(content: Content, random: Random) -> None:
    where = {"batch": 99, "context": random.randrange(999), "mode": "eager"}
    content["missing"] = [{**where, "reason": "one"}, {**where, "reason": "other"}]


def target_looks_up(content: Content, random: Random) -> None:
    content["target"]["longest_match"] = random.randrange(1, 9)


def target_has_no_parameters(content: Content, random: Random) -> None:
    content["target"]["parameters"] = -random.randrange(2)


def lookup_with_parameters(content: Content, random: Random) -> None:
    content["run_times"] = [row for row in content["run_times"] if row["model"] == "target"]
    content["draft"]["longest_match"] = random.randrange(1, 9)


def lookup_with_runs(content: Content, random: Random) -> None:
    content["draft"].update(parameters=0, longest_match=random.randrange(1, 9))


def file_in_another_folder(content: Content, random: Random) -> None:
    names = ("../p.trace.parquet", "/dev/zero", "..", ".", "", "a/b", "a\\b", "a\0", "n" * 256)
    measured(content)["trace"]["file"] = random.choice(names)


def hash_that_is_none(content: Content, random: Random) -> None:
    sha = measured(content)["trace"]["sha256"]
    measured(content)["trace"]["sha256"] = random.choice(
        (sha[1:], sha + "0", "G" + sha[1:], "A" + sha[1:], "", sha + "\n")
    )


def hash_of_another_file(content: Content, random: Random) -> None:
    measured(content)["trace"]["sha256"] = f"{random.getrandbits(256):064x}"


def requests_unlike_the_trace(content: Content, random: Random) -> None:
    measured(content)["requests"] = random.randrange(21, 999)


def tokens_unlike_the_trace(content: Content, random: Random) -> None:
    measured(content)["tokens"] = random.randrange(20, 1000)


def alpha_unlike_the_trace(content: Content, random: Random) -> None:
    best = measured(content)["alpha"]["best"]
    measured(content)["alpha"] = same(best + random.choice((-1, 1)) * random.uniform(0.002, 0.3))


OF_PROFILES: tuple[Rule, ...] = (
    *(unknown_field, another_type, another_version, field_is_absent, interval_is_turned),
    *(rate_is_outside_its_interval, rate_is_no_share, survival_rises, end_of_survival_rises),
    *(survival_is_no_product, curves_are_of_unlike_length, gamma_max_is_another),
    *(tokens_that_nobody_has_room_for, requests_are_shorter_than_drafts, one_request),
    *(negative_temperature, entry_is_there_twice, seconds_that_nothing_takes, run_in_no_time),
    *(runs_without_their_plain_steps, passes_that_were_none, overhead_of_longer_drafts),
    *(alone_in_a_batch, missing_and_there, missing_twice, target_looks_up),
    *(target_has_no_parameters, lookup_with_parameters, lookup_with_runs, file_in_another_folder),
    *(hash_that_is_none, hash_of_another_file, requests_unlike_the_trace),
    *(tokens_unlike_the_trace, alpha_unlike_the_trace),
)


def traced(path: Path) -> Trace:
    """The trace of a profile, both of them checked."""
    found = read_profile(path)
    return found.trace(path, found.acceptance[0])


@pytest.mark.parametrize("seed", range(TIMES))
@pytest.mark.parametrize("rule", OF_PROFILES, ids=lambda rule: rule.__name__)
def test_a_profile_that_breaks_a_rule_is_refused(profile: Path, rule: Rule, seed: int) -> None:
    path = changed(profile, rule, seed)
    with pytest.raises(ProfileError) as refused:
        traced(path)
    assert str(refused.value).startswith(f"profile {path}: ")
    assert "\n" not in str(refused.value)


# --- rules of acceptance files -----------------------------------------------------------------


def counted(content: Content) -> Content:
    found: Content = content["counts"][0]
    return found


def part_is_absent(content: Content, random: Random) -> None:
    optional = ("acceptance_law", "temperature", "method", "totals", "prompts")
    del content[random.choice([key for key in content if key not in optional])]


def more_accepted_than_drafted(content: Content, random: Random) -> None:
    counted(content)["accepted"] = counted(content)["drafted"] + random.randrange(1, 10**6)


def fewer_rounds_than_reached(content: Content, random: Random) -> None:
    counted(content)["rounds"] = random.uniform(0, counted(content)["reached"][0] - 1)


def positions_rise(content: Content, random: Random) -> None:
    reached = counted(content)["reached"]
    at = random.randrange(1, len(reached))
    reached[at] = reached[at - 1] + random.uniform(1, 99)


def positions_behind_the_draft(content: Content, random: Random) -> None:
    reached = counted(content)["reached"]
    reached.append(reached[-1] * random.uniform(0.5, 1))


def positions_add_up_to_another(content: Content, random: Random) -> None:
    counted(content)["accepted"] *= random.uniform(0.1, 0.9)


def counts_below_nothing(content: Content, random: Random) -> None:
    name = random.choice(("rounds", "accepted", "drafted"))
    counted(content)[name] = -random.uniform(1, 9)


def lengths_of_no_draft(content: Content, random: Random) -> None:
    counted(content)["gamma"] = random.choice((-1, 1001, 10**30, 2.5))


def counted_twice(content: Content, random: Random) -> None:
    again = {**counted(content), "drafted": None}
    content["counts"].insert(random.randrange(2), again)


def mean_beyond_its_draft(content: Content, random: Random) -> None:
    mean = random.choice((random.uniform(0, 0.99), random.uniform(4.01, 99)))
    content["lengths"] = [{"gamma": 3, "tokens_per_call": mean, "weight": 1, "weight_of": "means"}]


def mean_of_no_weight(content: Content, random: Random) -> None:
    weight = -random.uniform(0, 1) * random.randrange(2)
    content["lengths"] = [{"tokens_per_call": 2, "weight": weight, "weight_of": "means"}]


def mean_twice(content: Content, random: Random) -> None:
    means = random.uniform(1, 2), random.uniform(1, 2)
    content["lengths"] = [
        {"gamma": 3, "tokens_per_call": mean, "weight": 1, "weight_of": "means"} for mean in means
    ]


def totals_of_more_than_drafted(content: Content, random: Random) -> None:
    drafted = random.uniform(0, 99)
    content["totals"] = {"accepted": drafted + random.uniform(1, 9), "drafted": drafted}


def step_that_nothing_takes(content: Content, random: Random) -> None:
    step = content["steps"][0]
    name = random.choice(("seconds", "batch", "draft_s", "first_s", "repeat", "context"))
    step[name] = -random.randrange(1, 9)
    if name in ("seconds", "first_s") and random.random() < 0.5:
        step[name] = 3600 + random.uniform(1, 9)


def drafts_longer_than_their_step(content: Content, random: Random) -> None:
    step = content["steps"][0]
    step["draft_s"] = step["seconds"] * random.uniform(1, 9)


def step_twice_in_a_repeat(content: Content, random: Random) -> None:
    step = {**content["steps"][0], "repeat": random.randrange(9)}
    content["steps"] = [step, {**step, "seconds": step["seconds"] * 1.1}]


def prompt_that_cannot_be(content: Content, random: Random) -> None:
    prompt = {"gamma": 3, "tokens": 64, "seconds": 0.01, "answer_s": 0.02, "repeat": 0}
    name, value = random.choice(
        (
            ("gamma", random.choice((-1, 1001))),
            ("tokens", random.choice((0, -5, 2**70))),
            ("seconds", random.choice((0.0, -0.01, 0.02 + random.random()))),
            ("answer_s", random.choice((0.0, 0.009, 3600 + random.uniform(1, 9)))),
            ("repeat", -1),
        )
    )
    content["prompts"] = [{**prompt, name: value}]


def no_source_or_one_twice(content: Content, random: Random) -> None:
    content["sources"] *= random.choice((0, 2, 3))


def words_that_are_none(content: Content, random: Random) -> None:
    content[random.choice(("acceptance_law", "method"))] = random.choice(("magic", "", "RATIO"))


OF_ACCEPTANCE: tuple[Rule, ...] = (
    *(unknown_field, another_type, another_version, part_is_absent, more_accepted_than_drafted),
    *(fewer_rounds_than_reached, positions_rise, positions_behind_the_draft),
    *(positions_add_up_to_another, counts_below_nothing, lengths_of_no_draft, counted_twice),
    *(mean_beyond_its_draft, mean_of_no_weight, mean_twice, totals_of_more_than_drafted),
    *(step_that_nothing_takes, drafts_longer_than_their_step, step_twice_in_a_repeat),
    *(prompt_that_cannot_be, no_source_or_one_twice, words_that_are_none),
)


@pytest.mark.parametrize("seed", range(TIMES))
@pytest.mark.parametrize("rule", OF_ACCEPTANCE, ids=lambda rule: rule.__name__)
def test_an_acceptance_file_that_breaks_a_rule_is_refused(
    acceptance: Path, rule: Rule, seed: int
) -> None:
    path = changed(acceptance, rule, seed)
    with pytest.raises(AcceptanceFileError) as refused:
        read_acceptance(path)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


# --- and nothing else --------------------------------------------------------------------------


def another_measurement(content: Content, random: Random) -> None:
    """What might as well have been measured."""
    own = measured(content)
    width = random.uniform(0, 0.3)
    for rate in (own["alpha"], *own["survival"], *own["conditional"]):
        rate["low"] *= 1 - width
        rate["high"] = min(1.0, rate["high"] * (1 + width))
    for name in (*RUNS, *HOST):
        rows = content[name]
        del rows[random.randrange(len(rows))]
        random.shuffle(rows)
        for row in rows:
            row["seconds"] = [seconds * random.uniform(0.5, 2) for seconds in row["seconds"]]
            if random.random() < 0.5:
                row["passes"] = [random.randrange(9) for _ in row["seconds"]]
    content["notes"] = ["a note", "busy machine: a note"][: random.randrange(3)]
    content["missing"] = [{"batch": 512, "context": 64, "mode": "eager", "reason": "memory"}]
    own["max_new_tokens"] = random.choice((50, 51, 900))


@pytest.mark.parametrize("seed", range(TIMES))
def test_what_might_be_is_not_refused(profile: Path, seed: int) -> None:
    path = changed(profile, another_measurement, seed)
    assert traced(path).tokens == 1000


def test_two_hundred_are_refused() -> None:
    assert TIMES * (len(OF_PROFILES) + len(OF_ACCEPTANCE)) >= 200
