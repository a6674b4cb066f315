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
from studies.fidelity import figures, formula, public, roofline, tables
from studies.fidelity.formula import SPEEDUP

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
}

_PICTURES = {
    "predicted_measured": Picture(figures.predicted_measured, ("points",)),
    "formula": Picture(figures.formula, ("formula",)),
    "iid": Picture(figures.iid, ("iid",)),
    "laws": Picture(figures.laws, ("laws",)),
    "orderings": Picture(figures.orderings, ("orderings",)),
    "public": Picture(figures.public, ("public_formula", "public_chains")),
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
        # Behind the figures and the tables above, too long to read.
        "points": points,
        "public_chains": chains,
        "public": others,
    }


def _opening(found: Tables) -> Sequence[str]:
    decoded = found["decoders"] and found["formula"]
    differs = f"{_differs(found)} {_laws(found['laws'])}".rstrip()
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
