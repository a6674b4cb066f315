"""``sglang-h200``: shares and host times that explain the SpecBundle's speedups best.

345 rows of ``studies/reference/public_measurements.csv``: nine targets with EAGLE-3 heads at batch
8 on H200 under SGLang (SpecForge a6b6b023, docs/spec_bundle/public/raw_data/data.json,
Apache-2.0), on as many cards as ``specbundle_parallelism.csv`` says.
``DeployedCost`` prices a round with the row's steps, topk and slots, and a plain step; predicted is

    speedup = acceptance length t_plain / t_round

Least squares of log(predicted / measured) over eta_b, t_layer, t_step, t_round and the routing
exponent, with a tenth of that weight on the plain step times themselves, a tight prior on eta_b,
which ratios do not tell apart from the times, and a loss that forgives far rows.  eta_f stays
typical: no run is bound by arithmetic.  Prompts are in the throughputs and not in the prices.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from specsim import deploy
from specsim.checks import Floats
from specsim.deployment.cost import DeployedCost
from specsim.deployment.drafters import Eagle3
from specsim.hardware.roofline import Efficiency
from specsim.hardware.roofline_fit import parts_s
from studies.fidelity.specbundle_law import BATCH, CONTEXT, Rows, deployments, rows

# Shape, number type where it is not the config's, and degree of tensor parallelism, with sources.
TARGETS = {
    name: (row["shape"], row["dtype"] or None, int(row["tensor_parallel"]))
    for name, row in deployments().items()
}
# Heads as published, where their configuration is shipped.
HEADS = {
    shape: f"eagle3-{shape}"
    for shape in (
        "qwen3-30b-a3b",
        "qwen3-235b-a22b",
        "kimi-k2",
        "ling-flash-2.0",
        "llama-3.3-70b",
        "llama-4-scout",
    )
}
EXPONENTS = (1.0, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3)
# log of eta_b, t_layer, t_step, t_round; spreads of the prior, and what a unit of it weighs against
# one row's log error.
TYPICAL = np.log([0.75, 2e-5, 1e-3, 1e-3])
SPREAD = np.array([0.05, 2.0, 2.0, 2.0])
PRIOR, PLAIN, FAR = 0.3, 0.1, 0.1
COMPUTE = 0.6


@dataclass(frozen=True)
class Found:
    """routing_exponent, values : of the fit; held_out : log(predicted / measured), each target by
    a fit to the others.
    left_out, plain : means by target of |predicted / measured - 1| of those, and of plain steps
        priced over measured - 1
    """

    routing_exponent: float
    values: Floats
    held_out: Floats
    left_out: dict[str, float]
    plain: dict[str, float]


class Law:
    """Seconds of plain steps and rounds by target and configuration, at one routing exponent."""

    def __init__(self, found: Rows, exponent: float) -> None:
        self.found, self.exponent = found, exponent
        of_rows = zip(found.steps, found.topk, found.positions, strict=True)
        each_row = [(int(steps), int(topk), int(slots)) for steps, topk, slots in of_rows]
        configurations = sorted(set(each_row))
        self.configuration = np.array([configurations.index(each) for each in each_row])
        self.cells = {
            (target, at): _runs(*TARGETS[name], each, exponent)
            for target, name in enumerate(found.targets)
            for at, each in enumerate([None, *configurations])
        }

    def at(self, x: Floats) -> tuple[Floats, Floats]:
        """Plain step and round of every row."""
        memory, layer_s, step_s, round_s = np.exp(x)
        efficiency = Efficiency(COMPUTE, min(float(memory), 1.0), float(layer_s))
        times = np.zeros((len(self.found.targets), self.configuration.max() + 2))
        for cell, (parts, layers, weight) in self.cells.items():
            times[cell] = weight @ parts_s(parts, layers, efficiency)
        plain = times[self.found.target, 0] + step_s
        return plain, times[self.found.target, self.configuration + 1] + step_s + round_s

    def misses(self, x: Floats) -> Floats:
        """log(predicted / measured) of the speedups."""
        plain, block = self.at(x)
        found: Floats = np.log(self.found.acceptance_length * plain / block / self.found.speedup)
        return found

    def fit(self, known: np.ndarray) -> tuple[float, Floats]:
        """The least loss and where it is."""

        def losses(x: Floats) -> Floats:
            plain = np.log(self.at(x)[0] / self.found.plain_s)[known]
            return np.concatenate(
                [self.misses(x)[known], PLAIN * plain, PRIOR * (x - TYPICAL) / SPREAD]
            )

        bounds = np.log([0.2, 1e-7, 1e-6, 1e-6]), np.log([1.0, 1e-3, 2e-2, 2e-2])
        best = least_squares(losses, TYPICAL, bounds=bounds, loss="soft_l1", f_scale=FAR)
        return float(best.cost), best.x


def _runs(
    shape: str,
    dtype: str | None,
    tensor: int,
    configuration: tuple[int, int, int] | None,
    exponent: float,
) -> tuple[Floats, Floats, Floats]:
    """Parts at the peaks, layers and counts of the runs of a step."""
    drafter = None
    if configuration is not None:
        _, topk, slots = configuration
        drafter = Eagle3(model=HEADS.get(shape), topk=topk, slots=slots)
    deployment = deploy(
        shape,
        "H200",
        drafter or (),
        tensor_parallel=tensor,
        dtype=dtype,
        routing_exponent=exponent,
        memory_utilisation=1.0,
        reserve_gb=0.0,
        layer_us=1e6,  # a second, so that launch_s counts layers
    )
    gamma = configuration[0] if configuration else 0
    cost = DeployedCost(deployment, drafter, gamma + 1)
    runs = [*cost.draft_runs(gamma, BATCH, CONTEXT), *cost.target_runs(gamma, BATCH, CONTEXT)]
    parts = [[each.run.compute_s, each.run.memory_s, each.run.communication_s] for each in runs]
    return (
        np.array(parts),
        np.array([each.run.launch_s for each in runs]),
        np.array([each.count * each.turns for each in runs]),
    )


def fit() -> Found:
    """The fit to all rows, and what it says of each target when that was left out."""
    found = rows()
    laws = [Law(found, exponent) for exponent in EXPONENTS]

    def best(known: np.ndarray) -> tuple[Law, Floats]:
        fits = [(*law.fit(known), law) for law in laws]
        _, x, law = min(fits, key=lambda each: each[0])
        return law, x

    held_out = np.zeros(found.target.size)
    for target in range(len(found.targets)):
        law, x = best(found.target != target)
        held_out[found.target == target] = law.misses(x)[found.target == target]
    law, x = best(np.ones(found.target.size, dtype=bool))
    left_out, plain = {}, {}
    for at, name in enumerate(found.targets):
        of = found.target == at
        left_out[name] = float(np.abs(np.expm1(held_out[of])).mean())
        plain[name] = float((law.at(x)[0][of] / found.plain_s[of]).mean()) - 1
        print(
            f"{name:33} tensor {TARGETS[name][2]} error "
            f"{100 * np.abs(np.expm1(law.misses(x)[of])).mean():5.1f} %, left out "
            f"{100 * left_out[name]:5.1f} %, plain step {100 * plain[name]:+.0f} %"
        )
    print(f"all, left out: {100 * np.abs(np.expm1(held_out)).mean():.1f} %")
    return Found(law.exponent, np.exp(x), held_out, left_out, plain)


if __name__ == "__main__":
    print(fit())
