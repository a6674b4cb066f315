"""The papers' formula beside the replay, and what following either would have cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from specsim import formulas
from specsim.optimizers.search import fastest
from studies.common.measured import Measured, temperature_of
from studies.common.study import Row

TOKENS, SPEEDUP = "tokens per call", "speedup"
# What a prediction should stay within; the band of the figures.
BAND = 0.05
SCHEMES, SPECULATIVE, SYNTHETIC = (
    "all decoders",
    "speculative decoding",
    "batched, synthetic acceptance",
)


def formula_rows(measured: Measured) -> Iterator[dict[str, Any]]:
    """Speculative decoding of the profile's pair, at every draft length.

    Both predictions rest on the same text and on the same run times (``specsim validate``): the
    formula on the mean acceptance alpha and on c, the replay on all of it.
    """
    for row in measured.speedups:
        counted, tokens = row["measured_tokens_per_call"], row["predicted_tokens_per_call"]
        formula = float(formulas.tokens_per_call(row["alpha"], row["gamma"]))
        yield {
            "temperature": row["temperature"],
            "prompts": row["prompts"],
            "gamma": row["gamma"],
            "alpha": row["alpha"],
            "formula_tokens_per_call": formula,
            "replay_tokens_per_call": tokens,
            "measured_tokens_per_call": counted,
            "formula_tokens_error": formula / counted - 1,
            "replay_tokens_error": tokens / counted - 1,
            "formula_speedup": row["formula_speedup"],
            "replay_speedup": row["predicted_speedup"],
            "measured_speedup": row["measured_speedup"],
            "formula_error": row["formula_speedup"] / row["measured_speedup"] - 1,
            "replay_error": row["predicted_speedup"] / row["measured_speedup"] - 1,
        }


def iid_rows(measured: Measured) -> Iterator[dict[str, Any]]:
    for load in measured.workloads:
        for predicted in load.predict(range(1, measured.profile.gamma_max + 1)):
            gamma, alpha = predicted.gamma, load.measured.alpha.best
            tokens = float(formulas.tokens_per_call(alpha, gamma))
            speedup = load.formula(gamma)
            yield {
                "temperature": temperature_of(load),
                "gamma": gamma,
                "alpha": alpha,
                "formula_tokens_per_call": tokens,
                "replay_tokens_per_call": predicted.tokens_per_call,
                "tokens_difference": tokens / predicted.tokens_per_call - 1,
                "formula_speedup": speedup,
                "replay_speedup": predicted.speedup,
                "speedup_difference": speedup / predicted.speedup - 1,
            }


def decisions(measured: Measured) -> Iterator[dict[str, Any]]:
    """The draft length that each would choose where all were decoded; 0 is plain decoding.

    loss : share of the best measured speed that is lost by that choice
    """
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in measured.speedups:
        case = f"temperature {row['temperature']:g}, {row['prompts']} prompts"
        groups[SPECULATIVE, case].append(row)
    for row in measured.synthetic:
        groups[SYNTHETIC, f"batch {row['batch']}, context {row['context']}"].append(row)
    for (measurement, case), rows in groups.items():
        found = {row["gamma"]: row["measured_speedup"] for row in rows} | {0: 1.0}
        best = fastest(found)
        chosen: dict[str, Any] = {"measured_best": best, "measured_speedup": found[best]}
        for name in ("predicted", "formula"):
            if any(row.get(f"{name}_speedup") is None for row in rows):
                continue
            said = {row["gamma"]: row[f"{name}_speedup"] for row in rows} | {0: 1.0}
            choice = fastest(said)
            chosen |= {f"{name}_best": choice, f"{name}_loss": 1 - found[choice] / found[best]}
        yield {"measurement": measurement, "case": case, **chosen}
