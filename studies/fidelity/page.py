"""Our own study: every prediction that specsim makes beside every measurement there is.

Ours are decoders run beside the profile (``specsim validate``, plainly, with ``--scheme all`` and
with ``--synthetic``); other people's are in ``studies.fidelity.public``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from studies.common import orderings
from studies.common.measured import Measured
from studies.common.study import NOT_DECODED, Check, Picture, Row, Study, Tables, where
from studies.fidelity import (
    cost_curve,
    figures,
    formula,
    public,
    roofline,
    specbundle_tables,
    tables,
)
from studies.fidelity.formula import SPEEDUP
from studies.fidelity.specbundle_tables import LAW, LINE, NOTHING, ONE, OTHERS

_CAPTIONS: Mapping[str, str] = {
    "errors": "How far predictions are off. By measurement; an error is predicted over measured, "
    "less one.",
    "budget": "Where the error of a speedup comes from. What the speedup is off by for one part "
    "alone.",
    "formula": "The papers' formula and the replay. Beside what was measured, both from the same "
    "text and run times: the decoded requests' own, or for unseen prompts the calibration's.",
    "decisions": "The draft length that each would choose. And the share of the best measured "
    "speed that it loses.",
    "iid": "The papers' formula against the replay of the whole trace. Tokens per call, and "
    "speedup.",
    "roofline": "The roofline of each shape against the grid of batches. Its rates are fitted, as "
    "a core has no data sheet: what is left is what the form of a roofline misses.",
    "orderings": orderings.CAPTION,
    "decoders": "Every decoder, predicted and measured. Runs of each model are per 100 tokens, "
    "predicted / counted.",
    "laws": "Law, replay and decoder of every scheme that has a law. Tokens per call of the same "
    "requests. The law takes acceptance as alike at every place: it is told one rate for each "
    "drafter and verifier, the mean over the tokens of the text. The replay takes the acceptance "
    "of each place as it was recorded. Law and replay differ because acceptance differs from place "
    "to place. Where it is high a few long blocks cover many tokens, and most target calls are "
    "made where it is low, so that a mean over tokens counts too much of what is easy.",
    "public_reasons": "Public measurements. For how many the papers' formula can be computed, and "
    "why not for the others.",
    "public_formula": "Public measurements that it can be computed for.",
    "public_chains_summary": "Public chains at several lengths. The formula from the shortest.",
    "public_blocks": "Public chains. What a block took, in target runs.",
    "specbundle_errors": "SpecBundle's speedups from their acceptance lengths. Mean absolute "
    "errors over the rows at batch 8, by what is known of the target. The cost law takes memory "
    "traffic, experts and communication from specsim's roofline and fits seven parameters, alike "
    "for all targets. Everything is fitted without the target that is predicted: the law, its "
    "routing exponent, and the variances of the correction by known rows. With one row known the "
    "error is over every choice of that row; the tails of the correction are those that make the "
    "other targets most likely, and every other way of choosing them leaves between 7.0 and 7.2 %. "
    "A routing exponent of 0.5 does better than one that is fitted, but was found by looking at "
    "these rows. Three things make these errors better than those "
    "that a new target will have. The form of the law was found on these rows, among about 150 "
    "variants. The degrees of parallelism are not in the data: where no launch command is "
    "published the smallest that holds the weights is taken, and other degrees for one target "
    "alone move the error above 10 %. And there are nine targets only; Scout, whose rows are not "
    "explained, is far worse than the others.",
    "specbundle_models": "SpecBundle by target. The errors of the cost law in the three states of "
    "knowledge, and how far the plain step and the round are off that it predicts without the "
    "target. A round is given in plain steps, AL over speedup. Absolute times are much worse than "
    "speedups, since what is wrong with both steps cancels in their ratio. Scout's rows are not "
    "explained: its rounds take 1.3 plain steps with 3 drafts as with 7, where those of the other "
    "mixtures of experts take 1.6 to 2.6, and more with more drafts.",
    "specbundle_configurations": "SpecBundle by configuration. Steps / topk / draft tokens.",
    "specbundle_parameters": "SpecBundle, the parameters of the cost law. The first row is fitted "
    "on all targets, the others without one. memory_efficiency is the share of the bandwidth that "
    "is reached. Microseconds are per layer of the target: layer_us to start a layer's work; "
    "verify_layer_us, what a round adds to verify and to manage drafts; tree_layer_us, what it "
    "adds for a tree; outside_us, time outside decoding by emitted token, and short_us more of it "
    "where answers are short (gsm8k). With routing_exponent r, n tokens of a request choose as "
    "many experts as n^r independent ones. What a draft pass takes is not identified: it is its "
    "traffic and twice layer_us by assumption. The spreads are of the logarithm of measured over "
    "predicted, by maximum likelihood on the other targets.",
    "specbundle_parallelism": "SpecBundle, degrees of parallelism. Not in the data; the smallest "
    "degree is the one that holds the weights in nine tenths of an H200.",
    "cost_curve_forms": "A measured cost curve, fitted on every second size. Printed by vLLM, on "
    "four B300; chosen is the form that the rows below show, after about a dozen were tried on "
    "these few sizes. Where the largest CUDA graph ends is given and not predicted.",
    "cost_curve": "The cost curve by size. An error is predicted over measured, less one; the "
    "last columns are of forms that were not chosen.",
}

_PICTURES = {
    "predicted_measured": Picture(figures.predicted_measured, ("points",)),
    "formula": Picture(figures.formula, ("formula",)),
    "iid": Picture(figures.iid, ("iid",)),
    "laws": Picture(figures.laws, ("laws",)),
    "orderings": Picture(figures.orderings, ("orderings",)),
    "public": Picture(figures.public, ("public_formula", "public_chains")),
    "specbundle": Picture(figures.specbundle, ("specbundle",)),
    "cost_curve": Picture(figures.cost_curve, ("cost_curve",)),
}


def _compute(measured: Measured) -> dict[str, Sequence[Row]]:
    points = list(tables.points(measured))
    others = public.rows()
    chains = list(public.chains(others))
    return {
        "errors": tables.errors(points),
        "budget": tables.budget(measured),
        "formula": list(formula.formula_rows(measured)),
        "decisions": list(formula.decisions(measured)),
        "iid": list(formula.iid_rows(measured)),
        "roofline": list(roofline.rows(measured)),
        "orderings": orderings.compute(measured),
        "decoders": list(tables.decoders(measured)),
        "laws": list(tables.laws(measured)),
        "public_reasons": public.reasons(others),
        "public_formula": [row for row in others if row["formula_speedup"] is not None],
        "public_chains_summary": public.summary(chains),
        "public_blocks": public.blocks(others),
        "specbundle_errors": list(specbundle_tables.errors()),
        "specbundle_models": list(specbundle_tables.targets()),
        "specbundle_configurations": list(specbundle_tables.configurations()),
        "specbundle_parameters": list(specbundle_tables.parameters()),
        "specbundle_parallelism": list(specbundle_tables.parallelism()),
        "cost_curve_forms": list(cost_curve.forms()),
        "cost_curve": list(cost_curve.rows()),
        # Behind the figures and the tables above, too long to read.
        "points": points,
        "public_chains": chains,
        "public": others,
        "specbundle": list(specbundle_tables.every_row()),
    }


def _opening(found: Tables) -> Sequence[str]:
    decoded = found["decoders"] and found["formula"]
    differs = " ".join(filter(None, (_differs(found), _laws(found["laws"]), _costs(found))))
    return _claim(found), _ours(found) if decoded else NOT_DECODED, differs


def _absolute(rows: Sequence[Row], column: str) -> list[float]:
    return [abs(row[column]) for row in rows]


def _claim(found: Tables) -> str:
    computed = found["public_formula"]
    errors = _absolute(computed, "relative_error")
    return (
        "The papers' formula needs alpha, c and gamma alone. Of "
        f"{len(found['public'])} public measurements {len(computed)} print enough to compute it; "
        f"there it is {median(errors):.0%} off in the median and {max(errors):.0%} at worst."
    )


def _ours(found: Tables) -> str:
    speedups = where(found["points"], quantity=SPEEDUP)
    errors = _absolute(speedups, "relative_error")
    decoders = found["decoders"]
    greedy = [row for row in decoders if row["exact"] is not None]
    close = sum(row["runs_within_3%"] for row in decoders)
    agree = sum(row["counts_as_predicted"] for row in decoders)
    largest = max(found["budget"], key=lambda row: row["median_absolute_error"])
    at = "" if largest["temperature"] is None else f" at temperature {largest['temperature']:g}"
    by_formula, by_replay = (
        median(_absolute(found["formula"], name)) for name in ("formula_error", "replay_error")
    )
    return (
        f"On our models predicted speedups are {median(errors):.1%} off in the median and "
        f"{max(errors):.0%} at worst, over {len(errors)} settings. For speculative decoding alone "
        f"the formula is {by_formula:.0%} off in the median and the replay {by_replay:.0%}. At "
        f"temperature 0 {sum(row['exact'] for row in greedy)} of {len(greedy)} decoders made just "
        f"the predicted calls. Of all {len(decoders)} the runs of {close} are within 3 % of the "
        f"prediction, and those of {agree - close} more within two standard errors. The largest "
        f"part of the error is {largest['part']}: {largest['measurement']}{at}, "
        f"{largest['median_absolute_error']:.1%} in the median."
    )


def _differs(found: Tables) -> str:
    tokens, speedups = (
        median(_absolute(found["iid"], name))
        for name in ("tokens_difference", "speedup_difference")
    )
    reach = max(found["public_chains_summary"], key=lambda row: (row["chains"], row["gamma"]))
    return (
        "The formula takes acceptance as i.i.d., a verifying run for a plain one and the host's "
        f"time for nothing. Its tokens per call, which rest on the first alone, are {tokens:.1%} "
        f"from the replay's in the median, and its speedups {speedups:.0%}. On {reach['chains']} "
        f"public chains i.i.d. acceptance read off at gamma {reach['known_gamma']} is "
        f"{reach['median_tokens_error']:+.0%} from the measured tokens per call at gamma "
        f"{reach['gamma']}, in the median."
    )


def _costs(found: Tables) -> str:
    """How far costs from shapes are from other people's measurements."""

    def error(known: str, prediction: str = LAW) -> float:
        (row,) = where(found["specbundle_errors"], known=known, prediction=prediction)
        return float(row["mean_error"])

    plain = [row["plain_error"] for row in found["specbundle_models"]]
    return (
        "Where costs come from shapes and one law for all targets, speedups of "
        f"{len(found['specbundle'])} public rows are {error(NOTHING):.1%} off for a target of "
        f"which nothing is known. They are {error(ONE):.1%} off with one of its rows known and "
        f"{error(OTHERS):.1%} with all others; one line in the steps leaves "
        f"{error(NOTHING, LINE):.1%}, {error(ONE, LINE):.1%} and {error(OTHERS, LINE):.1%}. "
        f"Plain steps alone are off by {min(plain):+.0%} to {max(plain):+.0%}."
    )


def _laws(laws: Sequence[Row]) -> str:
    """What schemes' laws lose, where any scheme with a law was decoded."""
    if not laws:
        return ""
    furthest = max(laws, key=lambda row: abs(row["law_over_replay"]))
    more = sum(row["law_over_replay"] > 0 for row in laws)
    return (
        "The laws of all schemes share that first assumption. Over "
        f"{len(laws)} decoded settings their tokens per call are "
        f"{median(_absolute(laws, 'law_over_replay')):.1%} from the replay's in the median, and "
        f"more in {more}. The furthest is {furthest['setting']} at temperature "
        f"{furthest['temperature']:g}: {furthest['law_tokens_per_call']:.2f} by its law, "
        f"{furthest['replay_tokens_per_call']:.2f} by replay and "
        f"{furthest['measured_tokens_per_call']:.2f} counted."
    )


def _checks(found: Tables) -> list[Check]:
    """Public acceptance figures that are printed in two ways, and must agree."""
    return public.checks()


STUDY = Study(
    "Fidelity: every prediction beside its measurement",
    _CAPTIONS,
    _PICTURES,
    _compute,
    _opening,
    _checks,
)
