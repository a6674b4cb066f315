"""A measured cost curve of one engine, fitted on every second size and judged on the others.

vLLM printed how long verification takes by tokens, and drafting by requests, for DeepSeek-V4-Flash
on four B300 (``reference/vllm_cost_curve.csv``).  Runs that are recorded as a CUDA graph follow

    t(n) = sqrt(floor^2 + (b touched(n) + c n)^2)

with touched(n) the share of the 256 experts that n tokens with 6 each touch (256 and 6:
https://docs.nvidia.com/nemo/automodel/model-coverage/large-language-models/deepseek-ai/DeepSeek-V4-Flash).
Behind the largest graph the host starts every kernel, which takes a time of its own:
t(n) = max(floor, c n).  Where the largest graph ends is read off the measurements and not
predicted: an engine knows its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from specsim.hardware import expected_experts
from studies.common.study import reference
from studies.fidelity.specbundle_law import Array, Mask

SOURCE = "vllm_cost_curve.csv"
_EXPERTS, _CHOSEN = 256, 6
# The largest size that is still fast; the next one that was measured is 1,536.
LARGEST_GRAPH = 1024
GRAPH, EAGER, DRAFT = "verify, CUDA graph", "verify, behind the largest graph", "draft"


@dataclass(frozen=True)
class Form:
    """A curve in milliseconds over sizes, from parameters that start at ``start``.

    column : of its errors in the table, where it was not chosen
    """

    column: str
    name: str
    curve: Callable[[Array, Array], Array]
    start: tuple[float, ...]


def _touched(sizes: Array) -> Array:
    """Share of a layer's experts that so many tokens touch, were each to choose for itself."""
    return np.array([expected_experts(_EXPERTS, _CHOSEN, size) / _EXPERTS for size in sizes])


# The first form of each regime is the one that was chosen; the others are what else was tried.
FORMS: dict[str, tuple[Form, ...]] = {
    GRAPH: (
        Form(
            "relative_error",
            "sqrt(floor^2 + (b touched + c n)^2)",
            lambda p, n: np.hypot(p[0], p[1] * _touched(n) + p[2] * n),
            (5.0, 7.0, 0.012),
        ),
        Form("line_error", "line: a + c n", lambda p, n: p[0] + p[1] * n, (5.0, 0.015)),
        Form(
            "sum_error",
            "sum: a + b touched + c n",
            lambda p, n: p[0] + p[1] * _touched(n) + p[2] * n,
            (5.0, 3.0, 0.01),
        ),
        Form(
            "maximum_error",
            "max(floor, b touched + c n)",
            lambda p, n: np.maximum(p[0], p[1] * _touched(n) + p[2] * n),
            (5.0, 7.0, 0.012),
        ),
    ),
    EAGER: (
        Form(
            "relative_error",
            "max(floor, c n)",
            lambda p, n: np.maximum(p[0], p[1] * n),
            (100.0, 0.016),
        ),
        Form("line_error", "line: a + c n", lambda p, n: p[0] + p[1] * n, (90.0, 0.005)),
    ),
    DRAFT: (Form("relative_error", "line: a + c n", lambda p, n: p[0] + p[1] * n, (0.9, 0.02)),),
}


def points() -> dict[str, tuple[Array, Array, Mask]]:
    """Sizes, milliseconds and which of them are fitted on, by regime.

    Every second size of a curve as it was printed is fitted on, the first of them included.
    """
    found: dict[str, list[tuple[float, float, bool]]] = {name: [] for name in FORMS}
    seen: Counter[str] = Counter()
    for row in reference("vllm_cost_curve"):
        size, regime = float(row["size"]), DRAFT
        if row["run"] == "verify":
            regime = GRAPH if size <= LARGEST_GRAPH else EAGER
        found[regime].append((size, float(row["milliseconds"]), seen[row["run"]] % 2 == 0))
        seen[row["run"]] += 1
    regimes = {}
    for name, rows in found.items():
        sizes, milliseconds, used = (np.array(column) for column in zip(*rows, strict=True))
        regimes[name] = (sizes, milliseconds, used)
    return regimes


def predict(form: Form, sizes: Array, milliseconds: Array, used: Mask) -> tuple[Array, Array]:
    """Parameters from the used sizes (least squares of logarithms), and the curve at all."""
    scale = np.array(form.start)

    def residuals(values: Array) -> Array:
        return np.log(form.curve(np.abs(values) * scale, sizes[used]) / milliseconds[used])

    best = np.abs(least_squares(residuals, np.ones(len(scale)), max_nfev=5000).x) * scale
    return best, form.curve(best, sizes)


def rows() -> Iterator[dict[str, Any]]:
    """Every printed size beside the chosen form; the alternatives' errors beside it."""
    for regime, (sizes, milliseconds, used) in points().items():
        errors = {
            form.column: predict(form, sizes, milliseconds, used)[1] / milliseconds - 1
            for form in FORMS[regime]
        }
        for place, size in enumerate(sizes):
            measured = float(milliseconds[place])
            # Where as many sizes were fitted as there are parameters only rounding is left.
            error = {name: round(float(each[place]), 6) for name, each in errors.items()}
            yield {
                "run": regime,
                "size": int(size),
                "used": "fitted" if used[place] else "judged",
                "measured_ms": measured,
                "predicted_ms": measured * (1 + error["relative_error"]),
                **error,
                "source": SOURCE,
            }


def forms() -> Iterator[dict[str, Any]]:
    """Every form: how far off it is where it was fitted, and on the sizes between."""
    for regime, (sizes, milliseconds, used) in points().items():
        for place, form in enumerate(FORMS[regime]):
            best, curve = predict(form, sizes, milliseconds, used)
            error = np.abs(curve / milliseconds - 1)
            yield {
                "run": regime,
                "form": form.name,
                "chosen": place == 0,
                "parameters": ", ".join(f"{value:.4g}" for value in best),
                "fitted_sizes": int(used.sum()),
                "fitted_error": round(float(error[used].mean()), 6),
                "judged_sizes": int((~used).sum()),
                "judged_error": float(error[~used].mean()),
                "judged_worst": float(error[~used].max()),
                "source": SOURCE,
            }
