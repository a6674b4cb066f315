"""Narasimhan24's lemmas on distributions small enough to enumerate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from specsim.checks import Floats
from specsim.frontier import (
    LabelledPositions,
    bound_0_1,
    bound_log,
    deferral_risk,
    least_risk,
    plug_in_regret,
    sweeps,
)
from specsim.rules import (
    BildStar,
    Chow,
    ChowLog,
    DeferralRule,
    Diff,
    DiffLog,
    Distributions,
    Opt,
    OptLog,
    Rule,
)
from specsim.rules.base import cross_entropy, distance, entropy

COST = st.floats(0, 4)


@st.composite
def laws(draw: st.DrawFn, rows: int, least: int = 0) -> Floats:
    """Distributions over a few tokens, shape (rows, T, V), ties and one-hot ones among them."""
    positions, words = draw(st.integers(1, 6)), draw(st.integers(2, 5))
    weights = draw(
        arrays.arrays(np.int64, (rows, positions, words), elements=st.integers(least, 8))
    )
    weights[..., 0] += weights.sum(axis=-1) == 0
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def expected_0_1(truth: Floats, model: Floats) -> Floats:
    """E_y[1[y != argmax]], by enumeration of the labels."""
    return 1 - np.take_along_axis(truth, model.argmax(-1)[..., None], -1)[..., 0]


# The rule of a loss, the loss and its bound, with truth, q and p; logs need all chances over zero.
JUDGED = st.one_of(
    st.tuples(st.just((Opt, expected_0_1, bound_0_1)), laws(3)),
    st.tuples(st.just((OptLog, cross_entropy, bound_log)), laws(3, least=1)),
)


@settings(max_examples=400)
@given(JUDGED, COST, st.booleans())
def test_lemmas_1_and_6_are_pointwise(
    judged: tuple[Any, Floats], cost: float, sequential: bool
) -> None:
    """No decision, at any position, has less risk than that of (9), for either loss.

    Lemma 1 is the same with the whole cost wherever the target is asked, which is the place of tv.
    """
    (_, loss, _), (truth, q, p) = judged
    draft, target = loss(truth, q), loss(truth, p)
    tv = np.ones_like(draft) if sequential else distance(p, q)
    optimal = deferral_risk(draft > target + cost * tv, draft, target, tv, cost)
    either = [deferral_risk(np.full(tv.shape, r), draft, target, tv, cost) for r in (0, 1)]
    assert optimal == pytest.approx(np.min(either, axis=0), abs=1e-12)
    assert least_risk(draft, target, tv, cost) == pytest.approx(optimal, abs=1e-12)


@settings(max_examples=200)
@given(JUDGED, COST)
def test_lemmas_7_and_8_bound_the_regret(judged: tuple[Any, Floats], cost: float) -> None:
    (rule, loss, bound), (truth, q, p) = judged
    draft, target, tv = loss(truth, q), loss(truth, p), distance(p, q)
    defer = rule(cost).defer(Distributions(p, q))
    regret = deferral_risk(defer, draft, target, tv, cost) - least_risk(draft, target, tv, cost)
    assert (regret >= 0).all()
    assert (regret <= bound(truth, q, p) + 1e-12).all()


def test_bounds_are_zero_for_models_that_are_the_truth() -> None:
    law = np.array([0.5, 0.5, 0.0])
    assert bound_0_1(law, law, law) == 0
    # B is infinite where a probability is zero; a model that is right is still off by nothing.
    assert bound_log(law, law, law) == 0
    assert bound_log(law, np.array([1.0, 0.0, 0.0]), law) == np.inf


def table(given_laws: Floats, labels: Any) -> LabelledPositions:
    """The columns of a file of positions, one request, from whole distributions."""
    q, p = given_laws
    with np.errstate(divide="ignore"):
        log = {
            name: np.log(np.take_along_axis(model, labels[:, None], -1)[:, 0])
            for name, model in (("draft", q), ("target", p))
        }
        columns = {
            "tv": distance(p, q),
            "tempered_draft_max": q.max(-1),
            "tempered_target_max": p.max(-1),
            "tempered_draft_entropy": entropy(q),
            "tempered_target_entropy": entropy(p),
            "tempered_bild_greedy": -np.log(np.take_along_axis(p, q.argmax(-1)[:, None], -1)[:, 0]),
            "tempered_bild_expectation": cross_entropy(q, p),
            "draft_log_range": -np.log(q.min(-1)),
            "target_log_range": -np.log(p.min(-1)),
        }
    for name, model in (("draft", q), ("target", p)):
        columns[f"logp_{name}"] = log[name]
        columns[f"{name}_top_is_label"] = (model.argmax(-1) == labels).astype(float)
    return LabelledPositions(np.array([0, len(labels)]), columns)


@st.composite
def labelled(draw: st.DrawFn, least: int = 0) -> tuple[Floats, Any]:
    models = draw(laws(2, least))
    words = st.integers(0, models.shape[-1] - 1)
    return models, draw(arrays.arrays(np.int64, models.shape[1], elements=words))


RULES: dict[str, Any] = {
    "Chow": Chow,
    "ChowLog": ChowLog,
    "Diff": Diff,
    "DiffLog": DiffLog,
    "Opt": Opt,
    "OptLog": OptLog,
    "BildStar greedy": lambda threshold: BildStar(threshold),
    "BildStar expectation": lambda threshold: BildStar(threshold, distance="expectation"),
}


def outcome(rule: Rule, models: Floats, labels: Any) -> tuple[float, float]:
    """Mean rejection and mean 1 - m(y), from the rule's own arrays."""
    q, p = models
    rows = Distributions(p, q)
    hit = np.take_along_axis(rule.emitted(rows), labels[:, None], -1)[:, 0]
    return 1 - float(rule.acceptance(rows).mean()), 1 - float(hit.mean())


@pytest.mark.parametrize("name", RULES)
@given(case=labelled())
def test_every_threshold_is_what_the_rule_does(name: str, case: tuple[Floats, Any]) -> None:
    """The sweep of per-position statistics against the rule run on whole distributions.

    Rejection by Lemma 5, loss by the emitted law; between two thresholds nothing changes, so
    midpoints are tried, away from the rounding of a comparison.
    """
    models, labels = case
    positions = table(models, labels)
    sweep = sweeps(positions, "tempered")[name]
    curve = sweep.curve(positions.tv, *positions.losses("sampled"))
    for at, lower in enumerate(curve.setting[1:], 1):
        upper = curve.setting[at - 1]
        middle = lower + 1 if np.isinf(upper) else (lower + upper) / 2
        if upper - lower < 1e-9:
            continue
        rule: DeferralRule = RULES[name](middle)
        rejection, loss = outcome(rule, models, labels)
        # The point of the scores above the midpoint is the one before the lower threshold's.
        assert curve.rejection[at] == pytest.approx(rejection, abs=1e-12)
        assert curve.loss[at] == pytest.approx(loss, abs=1e-12)


def test_a_draft_as_sure_as_its_target_is_never_deferred() -> None:
    """Scores of 0 are beyond costs below 0 alone, which nobody asks for."""
    labels = np.array([0, 1])
    found = plug_in_regret(table(np.stack([np.eye(2), np.eye(2)[::-1]]), labels), "0-1")
    assert (found.cost, found.regret) == (0.0, 0.0)


@given(labelled(least=1), st.lists(COST, max_size=8))
def test_plug_in_regret_is_the_worst_cost(case: tuple[Floats, Any], costs: list[float]) -> None:
    """No cost has more regret than the one reported, and the lemmas hold with one-hot truth."""
    models, labels = case
    q, p = models
    positions = table(models, labels)
    truth = np.eye(q.shape[-1])[labels]
    for loss, kind, bound in (("0-1", Opt, bound_0_1), ("log", OptLog, bound_log)):
        found = plug_in_regret(positions, loss)
        assert found.regret <= found.miscalibration + 1e-9
        assert found.bound == pytest.approx(bound(truth, q, p).mean())
        assert found.miscalibration <= found.bound + 1e-9
        draft, target = positions.losses(loss)
        for cost in costs:
            defer = kind(cost).defer(Distributions(p, q))
            risk = deferral_risk(defer, draft, target, positions.tv, cost)
            least = least_risk(draft, target, positions.tv, cost)
            assert (risk - least).mean() <= found.regret + 1e-9
        # And it is reached: at that cost, or right below it.
        near = []
        for cost in (found.cost, found.cost * (1 - 1e-9), found.cost - 1e-12):
            defer = kind(cost).defer(Distributions(p, q))
            risk = deferral_risk(defer, draft, target, positions.tv, cost)
            near.append((risk - least_risk(draft, target, positions.tv, cost)).mean())
        assert max(near) == pytest.approx(found.regret, abs=1e-6)
