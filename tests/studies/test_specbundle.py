"""The cost law on SpecBundle's rows, and the cost curve of an engine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from specsim.hardware import Parallelism, accelerator, expected_experts, roofline
from studies.common.study import reference, where
from studies.fidelity import cost_curve, specbundle, specbundle_known, specbundle_tables
from studies.fidelity.specbundle_law import (
    BATCH,
    CONTEXT,
    Law,
    deployments,
    fit,
    rows,
    shape_of,
    speedups,
    times,
    traffic,
)
from studies.fidelity.specbundle_tables import LAW, LINE, NOTHING, ONE, OTHERS, UNIFORM

FOUND = rows()
MOVED = traffic(FOUND.targets, specbundle.published())
PLAIN = Law(0.7, 45.0, 14.0, 17.0, 21.0, 39.0, 0.45)


def test_all_rows_at_batch_8_are_there() -> None:
    assert len(FOUND.speedup) == 345
    assert len(FOUND.targets) == 9
    assert set(FOUND.targets) == deployments().keys()
    # Printed throughputs over each other are the printed speedups.
    for row in reference("public_measurements"):
        if row["source"] == "SpecForge SpecBundle" and row["batch"] == "8":
            note = dict(part.strip().split("=")[:2] for part in row["note"].split(";")[2:4])
            ratio = float(note["tput"]) / float(note["base_tput"])
            assert ratio == pytest.approx(float(row["measured_speedup"]), abs=6e-5)


def test_traffic_is_the_rooflines_taken_apart() -> None:
    # At an exponent that the slopes were not taken at.
    exponent = 0.37
    read_s = MOVED.fixed_s + MOVED.expert_s[:, None] * MOVED.touched(exponent)
    for at, name in enumerate(FOUND.targets):
        parallel = Parallelism(tensor=specbundle.published()[name])
        for place, tokens in enumerate(MOVED.sizes):
            run = roofline(
                shape_of(deployments()[name]),
                accelerator("H200"),
                tokens,
                BATCH,
                CONTEXT,
                parallel=parallel,
                routing_exponent=exponent,
            )
            assert read_s[at, place] == pytest.approx(run.memory_s, rel=1e-9)
            assert MOVED.communication_s[at, place] == run.communication_s
            assert run.compute_s < run.memory_s, "arithmetic may be left out"


def test_times_are_the_equation_of_the_module() -> None:
    # An obvious slow twin, on the first row of every target.
    plain, drafted = times(FOUND, MOVED, PLAIN)
    for at in range(len(FOUND.targets)):
        row = int(np.flatnonzero(FOUND.of(at))[0])
        layers, steps = MOVED.layers[at], int(FOUND.steps[row])

        def run(tokens: float, at: int = at) -> float:
            place = MOVED.sizes.index(int(tokens))
            experts = int(MOVED.experts[at])
            chosen = round(MOVED.share[at] * experts)
            read = MOVED.fixed_s[at, place]
            if experts:
                touched = expected_experts(experts, chosen, BATCH * tokens**0.45)
                read += MOVED.expert_s[at] * touched
            return float(read / 0.7 + MOVED.communication_s[at, place])

        outside = layers * (21e-6 + 39e-6 * (FOUND.task[row] == "gsm8k"))
        tree = 17e-6 * (FOUND.topk[row] > 1)
        round_s = run(FOUND.positions[row]) + layers * (45e-6 + 14e-6 + tree)
        for step in range(steps):
            read = MOVED.later_s[at] if step else MOVED.first_s[at]
            round_s += read / 0.7 + MOVED.draft_communication_s[at] + 2 * 45e-6
        assert plain[row] == pytest.approx(run(1) + layers * 45e-6 + outside)
        assert drafted[row] == pytest.approx(round_s / FOUND.acceptance_length[row] + outside)


def test_a_law_that_made_the_rows_is_found_again() -> None:
    plain, drafted = times(FOUND, MOVED, PLAIN)
    made = replace(FOUND, speedup=plain / drafted, plain_s=plain)
    found = fit(made, MOVED, np.ones(len(plain), bool))
    for name, value in vars(PLAIN).items():
        assert getattr(found, name) == pytest.approx(value, rel=1e-3)


def test_a_targets_rows_do_not_influence_its_own_prediction() -> None:
    target = FOUND.targets.index("Kimi-K2-Instruct")
    of = FOUND.of(target)
    other = replace(
        FOUND,
        speedup=np.where(of, 3 * FOUND.speedup, FOUND.speedup),
        plain_s=np.where(of, 0.2 * FOUND.plain_s, FOUND.plain_s),
    )
    laws = [fit(rows, MOVED, ~of) for rows in (FOUND, other)]
    assert laws[0] == laws[1]
    assert (speedups(FOUND, MOVED, laws[0]) == speedups(other, MOVED, laws[1])).all()
    # Nor the variances of what corrects it; those of all targets do change.
    count = len(FOUND.targets)
    others = [n for n in range(count) if n != target]
    predicted = speedups(FOUND, MOVED, laws[0])
    residuals = [np.log(rows.speedup / predicted) for rows in (FOUND, other)]
    for targets, same in ((others, True), (list(range(count)), False)):
        one, two = (
            specbundle_known.fit(FOUND, each, targets, specbundle_known.STUDENT)
            for each in residuals
        )
        assert (one == two) is same


def test_the_evaluation_leaves_targets_out() -> None:
    made = specbundle.evaluation()
    target = 3
    law = fit(FOUND, MOVED, ~FOUND.of(target), made.laws.law)
    of = FOUND.of(target)
    assert made.laws.nothing(FOUND)[of] == pytest.approx(speedups(FOUND, MOVED, law)[of])
    # What corrects it rests on laws without both.
    both = fit(FOUND, MOVED, ~of & ~FOUND.of(5), PLAIN)
    expected = speedups(FOUND, MOVED, both)[FOUND.of(5)]
    assert made.laws.predicted[target, FOUND.of(5)] == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("tails", specbundle_known.TAILS)
def test_known_rows_as_by_a_joint_normal(tails: str) -> None:
    """Against the same sums written out over a grid of the target's factor."""
    generator = np.random.default_rng(0)
    residuals = generator.normal(0.0, 0.1, len(FOUND.speedup))
    spread = specbundle_known.Spread(tails, tuple(specbundle_known._START))
    target = FOUND.targets.index("Qwen3-Coder-30B-A3B-Instruct")
    of = np.flatnonzero(FOUND.of(target))
    task, configuration, head, row, wider, scale = np.exp(spread.logarithms)
    width = np.where(FOUND.task[of] == "gsm8k", wider, 1.0)
    covariance = np.array(
        [
            [
                task * (FOUND.task[i] == FOUND.task[j]) * width[a] * width[b]
                + configuration * (FOUND.configuration[i] == FOUND.configuration[j])
                + head * (FOUND.draft[i] == FOUND.draft[j])
                + row * (i == j)
                for b, j in enumerate(of)
            ]
            for a, i in enumerate(of)
        ]
    )
    factors = np.linspace(-1, 1, 401)
    prior = (
        np.exp(-0.5 * (factors / scale) ** 2)
        if tails == "normal"
        else (1 + (factors / scale) ** 2 / 2) ** -1.5
    )

    def expected(asked: int, known: list[int]) -> float:
        inverse = np.linalg.inv(covariance[np.ix_(known, known)])
        weights, means = [], []
        for factor, weight in zip(factors, prior, strict=True):
            left = residuals[of][known] - factor
            weights.append(weight * np.exp(-0.5 * left @ inverse @ left))
            means.append(factor + covariance[asked, known] @ inverse @ left)
        return float(np.average(means, weights=weights))

    by_one = specbundle_known.from_one(FOUND, residuals, target, spread)
    by_others = specbundle_known.from_others(FOUND, residuals, target, spread)
    assert by_one[2, 7] == pytest.approx(expected(2, [7]))
    assert by_others[4] == pytest.approx(expected(4, [n for n in range(len(of)) if n != 4]))


@pytest.mark.parametrize("tails", specbundle_known.TAILS)
def test_the_gradient_of_the_likelihood(tails: str) -> None:
    residuals = np.random.default_rng(1).normal(0.0, 0.1, len(FOUND.speedup))
    one = specbundle_known._target(FOUND, residuals, 0)
    at = specbundle_known._START + 0.1
    _, gradient = specbundle_known._cost(one, at, tails)
    for part in range(len(at)):
        step = np.zeros(len(at))
        step[part] = 1e-5
        up, down = (specbundle_known._cost(one, at + sign * step, tails)[0] for sign in (1, -1))
        assert gradient[part] == pytest.approx((up - down) / 2e-5, rel=1e-4, abs=1e-6)


def _error(known: str, prediction: str = LAW, column: str = "mean_error") -> float:
    (row,) = where(list(specbundle_tables.errors()), known=known, prediction=prediction)
    return float(row[column])


def test_errors_stay_within_what_was_asked() -> None:
    # Asked for: 10 % with nothing of the target known, 7 % with one row, 6 % with its other rows.
    assert _error(NOTHING) <= 0.10
    assert _error(ONE) <= 0.07
    assert _error(OTHERS) <= 0.06
    # The second only just, by the likelihood's choice of tails: fixed tails, and tails by their
    # error on the other targets, are above it, which the page must not hide.
    alternatives = [f"{LAW}, {each}" for each in specbundle.evaluation().tails]
    assert len(alternatives) == 3
    assert all(0.07 < _error(ONE, each) <= 0.073 for each in alternatives)
    # And the first not with every degree of parallelism that the data leaves open.
    for open_degree in ("smallest parallelism everywhere", "Scout on 4 cards", "Scout on 8 cards"):
        assert 0.10 < _error(NOTHING, f"{LAW}, {open_degree}") < 0.12


def test_errors_beside_the_baselines() -> None:
    for known in (NOTHING, ONE, OTHERS):
        assert _error(known) < _error(known, UNIFORM) < _error(known, LINE)
    # One line for all targets is about 20 % off, and 10 % where one row scales it.
    assert _error(NOTHING, LINE) == pytest.approx(0.20, abs=0.01)
    assert _error(ONE, LINE) == pytest.approx(0.10, abs=0.01)


def test_tables_agree_with_each_other() -> None:
    every = list(specbundle_tables.every_row())
    assert len(every) == 345
    mean = np.mean([abs(row["relative_error"]) for row in every])
    assert mean == pytest.approx(_error(NOTHING))
    for by in (specbundle_tables.targets(), specbundle_tables.configurations()):
        parts = list(by)
        assert sum(row["rows"] for row in parts) == 345
        for column, known in (
            ("nothing_known", NOTHING),
            ("one_row_known", ONE),
            ("other_rows_known", OTHERS),
        ):
            total = sum(row["rows"] * row[column] for row in parts) / 345
            assert total == pytest.approx(_error(known))
    folds = list(specbundle_tables.parameters())
    assert [row["without"] for row in folds] == [None, *FOUND.targets]


def test_the_page_says_of_scout_what_the_rows_say() -> None:
    scout = FOUND.of(FOUND.targets.index(specbundle.SCOUT))
    in_steps = FOUND.acceptance_length / FOUND.speedup
    for name in set(FOUND.configuration):
        assert in_steps[scout & (FOUND.configuration == name)].mean() == pytest.approx(
            1.3, abs=0.05
        )


def test_degrees_are_published_or_the_smallest() -> None:
    for row in specbundle_tables.parallelism():
        assert row["tensor_parallel"] >= row["smallest"]
        if row["basis"].startswith("smallest"):
            assert row["tensor_parallel"] == row["smallest"]
        else:
            assert row["source"].startswith("https://huggingface.co/lmsys/")


def test_the_cost_curve_is_judged_on_every_second_size() -> None:
    curve = list(cost_curve.rows())
    verify = [row for row in curve if row["run"] != cost_curve.DRAFT]
    assert [row["used"] for row in verify] == ["fitted", "judged"] * 7
    assert len(curve) == 18
    forms = {(row["run"], row["form"].partition(":")[0]): row for row in cost_curve.forms()}
    chosen = {run: row for (run, _), row in forms.items() if row["chosen"]}
    graph = chosen[cost_curve.GRAPH]
    assert graph["judged_error"] < 0.03
    assert graph["judged_worst"] < 0.05
    # Both are worse than the chosen form on the sizes between.
    for form in ("line", "sum"):
        assert forms[cost_curve.GRAPH, form]["judged_error"] > 1.5 * graph["judged_error"]
    # The cliff: five times as long at 1.5 times the size, and met from sizes behind it alone.
    behind = where(curve, run=cost_curve.EAGER, size=1536)[0]
    assert behind["used"] == "judged"
    assert abs(behind["relative_error"]) < 0.02
    assert chosen[cost_curve.EAGER]["judged_error"] < 0.15


def test_a_curve_is_fitted_as_a_line_is() -> None:
    sizes = np.array([1.0, 10.0, 100.0, 1000.0])
    form = next(form for form in cost_curve.FORMS[cost_curve.GRAPH] if form.column == "line_error")
    used = np.array([True, False, True, True])
    best, curve = cost_curve.predict(form, sizes, 3 + 0.02 * sizes, used)
    assert best == pytest.approx([3, 0.02])
    assert curve == pytest.approx(3 + 0.02 * sizes)
