"""``specsim.plan``: how long it simulates, prices by name, and what it keeps of a drafter."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import import_module
from math import ceil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import specsim
from specsim import deploy
from specsim.api.plan_doubts import replicas_interval
from specsim.api.plan_ranking import prices_of
from specsim.checks import InvalidArgumentError, UnsupportedError, significant
from specsim.intervals import Interval
from specsim.serving.levels import levels_of
from specsim.serving.planning.crossing import Crossing
from specsim.serving.planning.sizing import replicas_needed
from specsim.serving.planning.span import LEAST, STAYS, lasts, requests_wanted
from specsim.serving.workload_summary import WorkloadSummary
from tests.support.command_line import run

SERVING = Path(__file__).parents[3] / "studies" / "measured" / "serving-uneven"
STEPS = "step_ms=5,token_us=30,draft_run_ms=0.5"
ENGINE = "vllm:num_gpu_blocks=6000"


def plan(slo: str = "tpot_p99=0.02,ttft_p99=1", *, more: Any = None, **work: Any) -> Any:
    words: dict[str, Any] = {"prompt": "uniform:50,400", "output": "uniform:20,120", **work}
    if "arrivals" not in words:
        words["rate"] = words.get("rate", 60)
    given = {"alpha": 0.8, "step_model": STEPS, "engine": ENGINE, "gammas": [2], **(more or {})}
    return specsim.plan(specsim.workload(**words), slo=slo, **given)


@pytest.mark.parametrize(
    ("card", "prices", "expected"),
    [
        ("L40S", {"L4": 0.4, "L40S": 0.9}, 0.9),
        ("L40S", {"l40s": 0.8, "L4": 0.4}, 0.8),
        ("H100-PCIe", {"H100-PCIe": 2.0, "H100-SXM": 3.0}, 2.0),
        ("my card", {"My card": 1.0, "my": 2.0}, 1.0),
        # The table's other names of one card.
        ("A100-80GB-SXM", {"A100-SXM4-80GB": 1.5}, 1.5),
        ("H100-SXM", {"H100": 2.5}, 2.5),
    ],
)
def test_a_price_is_of_the_card_that_is_named(
    card: str, prices: dict[str, float], expected: float
) -> None:
    setups: Any = [SimpleNamespace(accelerator=card)]
    assert prices_of(prices, setups) == {card: expected}


@pytest.mark.parametrize(
    ("card", "prices"),
    [("L40S", {"L4": 0.4}), ("A100-80GB-SXM", {"A10": 1.0}), ("H200", {"H20": 1.2})],
)
def test_a_card_has_no_price_of_another_that_its_name_begins_with(
    card: str, prices: dict[str, float]
) -> None:
    setups: Any = [SimpleNamespace(accelerator=card)]
    with pytest.raises(InvalidArgumentError, match=f"price has none for {card}, got"):
        prices_of(prices, setups)


def test_two_prices_of_one_card_are_refused() -> None:
    setups: Any = [SimpleNamespace(accelerator="H100-SXM")]
    with pytest.raises(InvalidArgumentError, match="price names one accelerator twice"):
        prices_of({"H100": 2.0, "H100-SXM": 9.0}, setups)


def test_a_price_is_of_a_card_with_a_name() -> None:
    setups: Any = [SimpleNamespace(accelerator=name) for name in ("L4", "")]
    with pytest.raises(InvalidArgumentError, match="price must name every accelerator"):
        prices_of({"": 2.0}, setups[:1])
    with pytest.raises(InvalidArgumentError, match="must be one number where no accelerator"):
        prices_of({"L4": 2.0}, setups[1:])


def test_a_price_of_nothing_known_is_refused() -> None:
    setups: Any = [SimpleNamespace(accelerator="L4")]
    with pytest.raises(InvalidArgumentError, match="price has none for L4, got L40S"):
        prices_of({"L40S": 0.9}, setups)


def test_one_price_is_of_one_kind_of_cards() -> None:
    setups: Any = [SimpleNamespace(accelerator=name) for name in ("L4", "L40S", "L4")]
    with pytest.raises(InvalidArgumentError, match=r"such as L4=2\.5,L40S=2\.5, got 1"):
        prices_of(1.0, setups)
    assert prices_of(1.0, setups[:1]) == {"L4": 1.0}


def test_requests_come_for_some_stays() -> None:
    assert requests_wanted(600.0, 6.0) == 40_000
    assert requests_wanted(1.0, 6.0) == LEAST
    drawn = specsim.workload(rate=600, prompt=1, output=1, requests=40_000).draw(0)
    summary = WorkloadSummary.of(drawn)
    assert lasts(summary, 6.0)
    assert not lasts(summary, 7.0)


def test_as_many_requests_are_simulated_as_show_what_lasts() -> None:
    found = plan(rate=300)
    assert found.workload.requests == LEAST
    stay = found.best.figures["e2e_mean"]
    assert found.workload.duration_s > STAYS * stay
    assert not any("the simulated requests come within" in each for each in found.warnings)


def test_a_short_run_takes_no_replica_away_and_says_so() -> None:
    """Requests stay for about half a second here, and all of them come in a tenth of one."""
    slo = "tpot_p99=0.012,ttft_p99=1"
    analytic = plan(slo, rate=1000, requests=100, more={"simulated": False})
    found = plan(slo, rate=1000, requests=100)
    assert found.best.replicas >= analytic.best.replicas
    said = [each for each in found.warnings if each.startswith("the simulated requests come")]
    assert len(said) == 1
    assert "less than 10 times the" in said[0]
    assert not any(each in said for each in analytic.warnings)


def test_a_latency_that_no_request_has_meets_its_level(recwarn: pytest.WarningsRecorder) -> None:
    more = {"step_model": "step_ms=5,draft_run_ms=1"}
    found = plan("tpot_p99=0.05", more=more, rate=5, requests=60, output=1, prompt=100)
    assert found.met
    assert found.summary()["levels"]["tpot_p99"]["met"]
    assert not recwarn.list


def test_dflash_looks_one_further_in_a_plan_too() -> None:
    found = specsim.plan(
        specsim.workload(rate=8, prompt=100, output=50, requests=50),
        slo="tpot_p99=0.05",
        deployment=deploy("llama-3.1-8b", "H100-SXM", "parallel:kind=dflash,alpha=0.7"),
        gammas=[3],
        degrees=[1],
        simulated=False,
    )
    ahead = {each.planned.drafts.gamma_max: each.planned.drafts.lookahead for each in found.answers}
    assert ahead == {0: 0, 3: 4}


def test_rates_that_change_are_said_to_be_planned_at_their_mean() -> None:
    more = {"simulated": False}
    found = plan(more=more, arrivals="schedule:0=20,5=80", requests=500)
    assert found.warnings[0].startswith("the rate changes, up to 80 requests/s: what the analytic")


def test_a_schedule_of_rates_is_planned_for_as_long_as_is_said() -> None:
    """Its first 4,000 requests come before the rate changes; what is after that is forgotten."""
    with pytest.raises(InvalidArgumentError, match=r"\(--duration\) must say for how many"):
        plan(arrivals="schedule:0=2,3600=40")


def test_a_rate_that_changes_is_given_the_replicas_of_its_peak() -> None:
    """Four in five of the requests come in a tenth of the time, far more than their mean."""
    slo = "ttft_p99=0.5"
    found = plan(slo, arrivals="schedule:0=20,45=800", duration_s=50.0)
    steady = plan(slo, rate=800)
    assert found.rate < 120
    mean = plan(slo, rate=found.rate)
    assert found.met
    assert found.best.replicas > mean.best.replicas + 4
    assert found.best.replicas <= steady.best.replicas


def test_prompts_that_are_in_the_cache_need_fewer_replicas(tmp_path: Path) -> None:
    """All but the last 8 of 2,048 tokens are of one of ten beginnings."""
    rows = [
        {
            "timestamp": 20 * n,
            "input_length": 2056,
            "output_length": 4,
            "hash_ids": [10 * (n % 10) + block for block in range(4)] + [1000 + n],
        }
        for n in range(3000)
    ]
    path = tmp_path / "shared.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    given: Any = {"alpha": 0.8, "step_model": STEPS, "gammas": [2]}
    found, whole = (
        specsim.plan(specsim.workload(path), slo="ttft_p99=1", engine=f"{ENGINE},{words}", **given)
        for words in ("block_size=16", "enable_prefix_caching=false")
    )
    replica = found.best.planned.replica
    least = replicas_needed(found.rate, replica.capacity)
    assert whole.best.replicas >= least
    assert found.met
    assert found.best.replicas < least
    assert any("prompts share" in each for each in found.warnings)
    assert not any("prompts share" in each for each in whole.warnings)
    # Read whole, a prompt takes longer than such a level.
    shorter: Any = {"slo": "ttft_p90=0.03", "engine": f"{ENGINE},block_size=16"}
    tight = specsim.plan(specsim.workload(path), **shorter, **given)
    assert tight.best.sustained == 0
    assert tight.met
    assert any("prompts share" in each for each in tight.warnings)
    # The analytic mode does not know how many run together there: drafts of all batches are told.
    assert found.sequences is None
    most = found.best.planned.setup.engine.max_num_seqs
    assert found.summary()["plan"]["schedule"][-1][1] == most
    assert whole.sequences is not None


def test_nothing_costs_nothing() -> None:
    found = plan("ttft_p99=0.0001", more={"simulated": False, "price": 0.9})
    assert not found.met
    said = found.summary()["plan"]
    assert (said["cost_per_million_tokens"], said["cards"], said["replicas"]) == (None, None, None)


def test_sequences_that_are_mostly_in_use_hold_nobody() -> None:
    """Levels that allow for a queue: a replica near its capacity has all of its ten in use."""
    more = {"simulated": False, "engine": f"{ENGINE},max_num_seqs=10"}
    found = plan("tpot_p99=0.2", more=more)
    assert found.sequences is not None
    assert found.sequences.count == 10
    assert found.sequences.all_in_use > 0.1
    (line,) = (each for each in found.sentences() if "sequences" in each)
    assert line.startswith("all 10 sequences that fit are in use ")
    # A multiple of 8 that is beyond the engine's own limit is not asked for.
    more["engine"] = f"{ENGINE},max_num_seqs=12"
    found = plan("tpot_p99=0.012,ttft_p99=0.2", more=more, rate=2)
    assert found.sequences is not None
    assert found.sequences.count in (8, 12)


def test_what_costs_nothing_is_told_apart_by_its_cards() -> None:
    given: dict[str, Any] = {
        "slo": "ttft_p99=1,tpot_p99=0.05",
        "deployment": deploy("llama-3.1-8b", "L40S", "draft_model:llama-3.2-1b", efficiency=0.7),
        "alpha": 0.7,
        "gammas": [2],
        "degrees": [1, 2],
        "simulated": False,
    }
    work = specsim.workload(rate=40, prompt=400, output=200)
    free, unpriced = (specsim.plan(work, price=price, **given) for price in (0.0, None))
    for each in ("best", "with_drafts", "without"):
        ours, other = getattr(free, each), getattr(unpriced, each)
        assert (ours.planned.name, ours.replicas) == (other.planned.name, other.replicas)
    assert [row["with_drafts_cards"] for row in free.by_rate] == [
        row["with_drafts_cards"] for row in unpriced.by_rate
    ]
    assert free.summary()["plan"]["cost_per_million_tokens"] == 0.0


def test_intervals_that_are_not_there_are_not_promised() -> None:
    found = plan(requests=200)
    (line,) = (each for each in found.sentences() if each.startswith("simulated: "))
    assert line.endswith("of too few requests for intervals: simulate more requests")


def test_simulated_replicas_have_ends_by_their_own_share() -> None:
    """Half as many again as analytically, at both ends of the speed."""
    best = plan(more={"simulated": False}, rate=600).best
    wanted = best.replicas
    more = replace(best, replicas=wanted + wanted // 2)
    levels = levels_of("tpot_p99=0.02,ttft_p99=1")
    speed = Interval(0.8, 1.0, 1.25)
    alone = replicas_interval(best, 600, levels, speed)
    found = replicas_interval(more, 600, levels, speed)
    assert alone is not None
    assert found is not None
    share = more.replicas / wanted
    assert found.low == ceil(alone.low * share) < more.replicas
    assert found.high == ceil(alone.high * share) > more.replicas


def test_where_drafts_stop_paying_is_said_with_its_ends() -> None:
    found = plan(more={"simulated": False})
    ends = {
        (Crossing(3.0, 4.0), None, None): (
            "pay at every rate up to the capacity of a replica; where they are slowest they stop "
            "at 3 requests/s"
        ),
        (Crossing(0.0, 0.0), Crossing(0.0, 0.0), None): (
            "pay at no rate: as it is; where they are fastest they pay at every rate"
        ),
        (Crossing(2.0, 3.0), Crossing(3.0, 4.0), None): (
            "stop paying at 3 (2 to the capacity) requests/s of a replica, where 4 decode: as it is"
        ),
    }
    for stops, words in ends.items():
        said = replace(found, stops=stops, starts=None, why="as it is").sentences()
        assert any(each.endswith(words) for each in said), said
    later = replace(found, stops=(None, None, None), starts=Crossing(1.5, 2.0))
    assert any(
        each.endswith("pay from 1.5 requests/s of a replica on up to the capacity of a replica")
        for each in later.sentences()
    )
    assert later.summary()["plan"]["starts_paying_at"] == {"rate_per_replica": 1.5, "batch": 2.0}


def test_a_fit_is_doubted_on_every_kind_of_cards_by_its_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Whichever comes first, and whether or not it is what is answered with."""
    words = (
        "plan --rate 8 --requests 100 --prompt 200 --output 100 --slo tpot_p99=0.05 --analytic "
        "--degrees 1 --gamma 2"
    )
    cards = ["H100-SXM", "H200", "L40S"]
    for several in (cards, cards[::-1]):
        more = f"--target llama-3.1-8b --fit vllm-h100 --accelerator {','.join(several)}"
        code, _, err = run(capsys, *words.split(), *more.split(), "--drafter", "eagle3:alpha=0.7")
        assert code == 0, err
        for card in cards:
            doubts = err.count(f"made on H100-SXM; that {card} comes as close")
            assert doubts == (card != "H100-SXM"), err


def test_the_same_words_are_the_same_plan_to_the_last_bit() -> None:
    """Simulated as well, whatever was planned before it; another seed draws other requests."""
    first = plan()
    again = plan()
    assert again.to_json() == first.to_json()
    assert plan(more={"seed": 1}).best.figures != first.best.figures


def test_how_sure_the_simulated_answer_is_is_said() -> None:
    found = plan()
    settled = found.best.settled
    low, best, high = (
        1e3 * getattr(settled.figures["ttft_p99"], end) for end in ("low", "best", "high")
    )
    assert low < best < high
    (line,) = (each for each in found.sentences() if each.startswith("simulated: "))
    assert (
        f"ttft_p99 {significant(best)} ms ({significant(low, 3)} to {significant(high, 3)})" in line
    )
    assert line.endswith("95% intervals of chance alone")
    tight = replace(found, levels=levels_of(f"ttft_p99={1e-3 * (best + high) / 2}"))
    (line,) = (each for each in tight.sentences() if each.startswith("simulated: "))
    assert line.endswith("which do not all keep ttft_p99: simulate more requests")
    analytic = plan(more={"simulated": False})
    assert not any(each.startswith("simulated: ") for each in analytic.sentences())


def test_the_set_up_that_is_named_is_as_sure_as_its_costs_are() -> None:
    """Simulated at both ends of what a fit leaves open; others keep the intervals of chance."""
    load = specsim.workload(rate=20, prompt="uniform:50,400", output="uniform:20,120", requests=600)
    deployment = deploy(
        "llama-3.1-8b", "H100-SXM", "eagle3:alpha=0.7", fit="vllm-h100", tensor_parallel=1
    )
    found = specsim.plan(
        load, slo="tpot_p99=0.03,ttft_p99=1", deployment=deployment, gammas=[2], degrees=[1]
    )
    settled = found.best.settled
    assert settled.speed is not None
    assert settled.speed.low < 1.0 < settled.speed.high
    (chance,) = (
        each.settled
        for each in found.answers
        if each.planned is found.best.planned and each.replicas == found.best.replicas
    )
    assert chance.speed is None
    for name in ("tpot_p99", "ttft_p99", "e2e_mean"):
        wide, narrow = settled.figures[name], chance.figures[name]
        assert wide.low < narrow.low < narrow.best == wide.best < narrow.high < wide.high
    assert found.error_budget["sampling"] < 0.5
    (line,) = (each for each in found.sentences() if each.startswith("simulated: "))
    assert "95% intervals with what costs and acceptance leave open" in line
    # It is still one of the two that it is held against.
    assert sum(each is found.best for each in (found.with_drafts, found.without)) == 1


def test_two_acceptances_of_one_drafter_are_told_apart() -> None:
    found = specsim.plan(
        specsim.workload(rate=2.0, prompt=500, output=200),
        slo="tpot_p99=0.5",
        deployment=deploy("llama-3.1-8b", "H100", ["eagle3:alpha=0.8", "eagle3:alpha=0.5"]),
        gammas=[2],
        simulated=False,
    )
    named = {row["drafter"] for row in found.rows() if row["gamma"] != "off"}
    assert named == {"eagle3, alpha 0.8", "eagle3, alpha 0.5"}
    assert found.with_drafts is not None
    assert found.with_drafts.planned.drafter_named == "eagle3, alpha 0.8"
    assert found.with_drafts.planned.drafter == "eagle3"


@pytest.mark.parametrize("simulated", [False, True])
def test_cards_that_the_longest_request_does_not_fit_on_are_left_out(simulated: bool) -> None:
    """One L4 keeps 27,000 tokens, and one prompt in fifty is longer."""
    found = specsim.plan(
        specsim.workload(rate=0.1, prompt="lognormal:6000,1,60000", output=200),
        slo="ttft_p99=60,tpot_p99=0.5",
        deployment=deploy("llama-3.1-8b", "L4"),
        degrees=(1, 2),
        simulated=simulated,
    )
    assert {each.planned.cards for each in found.answers} == {2}
    (left_out,) = found.left_out
    assert left_out.what == "L4, tensor parallel 1, no drafts"
    assert "all that the KV cache holds" in left_out.why


def test_requests_that_are_drawn_later_must_fit_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first 50 requests fit on one L4, and one of the 4,000 that show what lasts does not."""
    module = import_module("specsim.api.plan")
    monkeypatch.setattr(module, "LEAST", 50)
    monkeypatch.setattr(module, "requests_wanted", lambda rate, stay_s: 4000)
    found = specsim.plan(
        specsim.workload(rate=5, prompt="lognormal:400,1.13,60000", output=30),
        slo="ttft_p99=600,tpot_p99=5",
        deployment=deploy("llama-3.1-8b", "L4"),
        degrees=(1, 2),
    )
    (left_out,) = found.left_out
    assert left_out.what == "1 L4, no drafts"
    assert {each.planned.cards for each in found.answers} == {2}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"deployment": deploy("llama-3.1-8b", "H100"), "step_model": "step_ms=500"},
            "step_model and deployment exclude each other",
        ),
        (
            {"alpha": 0.8, "step_model": STEPS, "engine": ENGINE, "degrees": (2, 4)},
            "degrees needs a deployment",
        ),
        (
            {"deployment": deploy("llama-3.1-8b", "H100", "eagle3:alpha=0.7"), "alpha": 0.1},
            "alpha has no meaning where every drafter has rates of its own",
        ),
        (
            {"deployment": deploy("llama-3.1-8b", "H100"), "temperature": 0.5},
            "temperature needs a profile",
        ),
        (
            {"deployment": deploy("llama-3.1-8b", "H100"), "slo": "ttft=1,tpot_p99=0.05"},
            "slo ttft is a limit of single requests, which a plan cannot promise: give ttft_p99",
        ),
        (
            {"deployment": deploy("llama-3.1-8b", "H100"), "gammas": [1, 300]},
            r"gammas must be a whole number in \[0, 256\], got 300",
        ),
    ],
)
def test_what_would_have_no_effect_is_refused(given: Any, said: str) -> None:
    work = specsim.workload(rate=4, prompt=500, output=150)
    with pytest.raises(InvalidArgumentError, match=said):
        specsim.plan(work, **{"slo": "tpot_p99=0.05", "simulated": False, **given})


def test_engines_are_made_for_the_draft_length_that_they_have() -> None:
    """Graphs of 64 tokens hold 64 / (1 + K) requests; PARD keeps K slots of every request."""
    given: Any = {"graph_tokens": 64, "eager_layer_us": 1000}
    work = specsim.workload(rate=8, prompt=100, output=50, requests=50)

    def planned(drafter: str, engine: str) -> list[Any]:
        deployment = deploy("llama-3.1-8b", "H100-SXM", drafter, **given)
        found = specsim.plan(
            work,
            slo="tpot_p99=0.5",
            deployment=deployment,
            alpha=0.7,
            gammas=[1, 3],
            degrees=[1],
            engine=engine,
            simulated=False,
        )
        return [each.planned for each in found.answers]

    sglang = planned("draft_model:llama-3.2-1b", "sglang")
    graphs = {each.drafts.gamma_max: each.setup.engine.cuda_graph_max_bs_decode for each in sglang}
    assert graphs == {0: 64, 1: 32, 3: 16}
    vllm = planned("parallel:kind=pard", "vllm")
    slots = {each.drafts.gamma_max: each.drafts.slots_for_drafting for each in vllm}
    assert slots == {0: 0, 1: 1, 3: 3}


def test_a_batch_that_was_not_timed_is_no_full_cache() -> None:
    found = specsim.plan(
        specsim.workload(rate=20, prompt=60, output=40),
        slo="tpot_p99=0.2",
        profile=SERVING / "profile.vllm-3.json",
        gammas=[4],
        engine="vllm:num_gpu_blocks=4000,block_size=32",
        margin=0.0,
        simulated=False,
    )
    assert found.stops is not None
    crossing = found.stops[1]
    assert crossing is not None
    assert crossing.batch > 16
    assert found.reason is None
    assert "were timed at batch 1, 2, 3, 4, 6, 8, 12, 16" in found.why


def test_a_draft_length_that_does_not_fit_leaves_the_shorter_ones() -> None:
    """160 tokens of cache, for requests of 150 and three times the drafts beside them."""
    more = {"engine": "vllm:num_gpu_blocks=11", "gammas": [2, 8], "simulated": False}
    found = plan(more=more, rate=1, prompt=100, output=50, requests=50)
    assert {each.planned.drafts.gamma_max for each in found.answers} == {0, 2}
    (left_out,) = found.left_out
    assert left_out.what == "drafts, gamma 8"
    assert "all that the KV cache holds" in left_out.why


def test_a_draft_length_that_was_asked_for_and_cannot_be_is_left_out_and_said() -> None:
    """Of lengths that nobody asked for only those are tried that the drafter makes."""
    given: Any = {
        "slo": "ttft_p99=1",
        "deployment": deploy("llama-3.1-8b", "H100", "medusa:heads=2,alpha=0.7"),
        "degrees": [1],
        "simulated": False,
    }
    work = specsim.workload(rate=1, prompt=100, output=50)
    (left_out,) = specsim.plan(work, gammas=[2, 8], **given).left_out
    assert left_out.what == "H100-SXM, tensor parallel 1, medusa:heads=2, gamma 8"
    assert left_out.why == "drafts are known up to 2"
    found = specsim.plan(work, **given)
    assert not found.left_out
    assert {each.planned.drafts.gamma_max for each in found.answers} == {0, 1, 2}


@pytest.mark.parametrize(
    ("drafter", "engine", "by_batch"),
    [
        ("draft_model:llama-3.2-1b,alpha=0.8", "vllm", True),
        ("draft_model:llama-3.2-1b,alpha=0.8", "sglang", False),
        ("eagle3:alpha=0.8", "sglang:max_running_requests=256", True),
        ("medusa:alpha=0.8", "vllm", False),
    ],
)
def test_lengths_by_batch_are_planned_where_engines_take_them(
    drafter: str, engine: str, by_batch: bool
) -> None:
    """At this rate and price of a round the best length falls with the batch."""
    deployment = deploy("llama-3.1-8b", "L40S", drafter, efficiency=0.6, layer_us=10)
    work = specsim.workload(rate=20, prompt=100, output=200, requests=100)
    given: Any = {"deployment": deployment, "engine": engine}
    found = specsim.plan(
        work, slo="tpot_p99=0.5", gammas=[1, 4], degrees=[1], simulated=False, **given
    )
    lengths = [len({each for *_, each in one.planned.drafts.schedule}) for one in found.answers]
    assert (max(lengths) > 1) == by_batch
    schedule: Any = [(1, 4, 4), (5, 64, 1)]
    if by_batch:
        assert specsim.serve(work, gamma=schedule, **given).figures
    else:
        with pytest.raises(UnsupportedError, match="takes no draft lengths by batch with"):
            specsim.serve(work, gamma=schedule, **given)


def test_what_is_known_of_drafts_is_said_of_the_length_that_is_named() -> None:
    """That one rate is taken for seven drafts concerns nobody whose answer has two."""
    found = specsim.plan(
        specsim.workload(rate=8, prompt=100, output=50, requests=50),
        slo="tpot_p99=0.5",
        deployment=deploy("llama-3.1-8b", "H100", "eagle3:alpha=0.7"),
        gammas=[2, 7],
        degrees=[1],
        simulated=False,
    )
    warned = {
        each.planned.drafts.gamma_max: any("at every draft" in one for one in each.planned.warnings)
        for each in found.answers
        if len(each.planned.drafts.schedule) == 1
    }
    assert warned == {2: False, 7: True}


def test_without_prices_the_fewest_cards_are_no_cheapest() -> None:
    words: dict[str, Any] = {"slo": "tpot_p99=0.08", "degrees": [1], "simulated": False}
    cards = ("H100-SXM", "L4")
    work = specsim.workload(rate=20, prompt=200, output=100, requests=100)
    several = [deploy("llama-3.1-8b", each) for each in cards]
    found = specsim.plan(work, deployment=several, **words)
    lines = found.sentences()
    assert lines[0].startswith("fewest cards: ")
    assert any(each.startswith("with L4, none with fewer cards: ") for each in lines)
    assert any("--price H100-SXM=...,L4=..." in each for each in found.warnings)
    priced = specsim.plan(work, deployment=several, price={"H100": 3.0, "L4": 0.4}, **words)
    assert priced.sentences()[0].startswith("cheapest: ")
    assert not any("--price" in each for each in priced.warnings)
    alone = specsim.plan(work, deployment=several[0], **words)
    assert alone.sentences()[0].startswith("cheapest: ")


def test_more_replicas_than_are_planned_are_no_queue() -> None:
    found = plan("ttft_p99=5", rate=10_000_000, requests=100, more={"simulated": False})
    assert not found.met
    assert found.sentences()[0].endswith("at no load (analytic): it takes too many replicas")


def test_one_request_comes_at_one_moment() -> None:
    found = plan(rate=5, requests=1)
    assert any("requests come at one moment, less than" in each for each in found.warnings)
    assert not any("nan" in each for each in (*found.warnings, *found.sentences()))


def test_a_drafter_that_is_dealt_out_is_planned_at_degrees(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The target alone cannot be on one card then."""
    words = (
        "plan --rate 1 --requests 50 --prompt 200 --output 50 --slo tpot_p99=0.5 --analytic "
        "--accelerator H100 --format json --degrees 2,8"
    )
    drafter = "--target llama-3.1-8b --drafter draft_model:llama-3.2-1b,tensor=2,alpha=0.7"
    experts = "--target qwen3-235b-a22b --expert-parallel 8"
    for more, degrees in ((drafter, {2, 8}), (experts, {8})):
        code, out, err = run(capsys, *words.split(), *more.split())
        assert code == 0, err
        rows = json.loads(out)["answer"]["rows"]
        assert {row["tensor_parallel"] for row in rows} == degrees


def test_a_drafter_that_makes_no_such_drafts_is_left_out_and_said() -> None:
    found = specsim.plan(
        specsim.workload(rate=1, prompt=100, output=50),
        slo="ttft_p99=1",
        deployment=deploy("llama-3.1-8b", "H100", "medusa:heads=2,alpha=0.7"),
        gammas=[3, 4],
        degrees=[1],
        simulated=False,
    )
    assert not any(each.planned.speculates for each in found.answers)
    assert "with drafts: none was tried" in found.sentences()
    (left_out,) = found.left_out
    assert left_out.what == "H100-SXM, tensor parallel 1, medusa:heads=2"
    assert left_out.why == "gamma must be <= 2, the longest that it drafts, got 3, 4"


def test_a_plan_says_that_nothing_is_known_to_route_by() -> None:
    for routing, said in (("prefix-aware", True), ("least-outstanding", False)):
        found = plan(rate=300, requests=600, more={"routing": routing})
        assert found.best.replicas > 1
        assert any("prefix-aware routing is least" in each for each in found.warnings) == said


def test_without_a_simulation_nothing_is_routed() -> None:
    for routing in ("prefix-aware", "least-outstanding"):
        with pytest.raises(InvalidArgumentError, match=f"nothing is simulated .*, got {routing}"):
            plan(more={"routing": routing, "simulated": False})
