"""One cost law for the SpecBundle rows: specsim's memory traffic, and what engines add to it.

SpecForge's SpecBundle (``reference/public_measurements.csv``) prints throughput with and without an
EAGLE-3 head at batch 8, and the acceptance length AL.  With one run over n tokens of each request

    M(n) = bytes(n) / (bandwidth e) + communication(n)

where bytes, communication and the experts that are touched are the roofline's on H200 at the peaks
(``specsim.hardware.roofline``, context 700), a plain step and a round of K drafts take

    plain = M(1) + L t
    round = M(n) + L (t + t_verify [+ t_tree]) + first draft + (K - 1) later drafts + 2 K t

and the speedup, with the time f outside decoding of a token (prompts, host),

    speedup = (plain + f) / (round / AL + f),    f = L (f_token [+ f_gsm8k])

for a target of L layers.  Seven parameters, alike for all targets; nothing is fitted by target.
Arithmetic is left out: it is below the memory traffic in all of these runs.  A draft run is one
layer, yet is given the launch time of two, for its embedding, head and sampling: the data does not
identify it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from functools import cache
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from specsim.deployment.drafters import Eagle3
from specsim.deployment.heads import draft_shapes
from specsim.hardware import Parallelism, Shape, accelerator, roofline, shape
from specsim.hardware.quantisation import precision_for
from studies.common.study import Row, reference

BATCH, CONTEXT, CARD = 8, 700, "H200"
# Of the heads' configurations.
_DRAFT_VOCABULARY = 32_000
# Tasks whose answers are short, so that more of the time is spent outside decoding.
SHORT = "gsm8k"

Array = np.ndarray[Any, np.dtype[np.float64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True)
class Rows:
    """The measurements, one array entry each.

    target : index into ``targets``
    configuration : steps / topk / draft tokens, as the source writes it
    positions : tokens of a request that the target verifies
    plain_s : seconds of plain decoding between two tokens of a request, all counted
    """

    targets: tuple[str, ...]
    target: Array
    draft: Array
    task: Array
    configuration: Array
    steps: Array
    topk: Array
    positions: Array
    acceptance_length: Array
    speedup: Array
    plain_s: Array

    @property
    def short(self) -> Mask:
        return np.asarray(self.task == SHORT)

    def of(self, target: int) -> Mask:
        return np.asarray(self.target == target)


@dataclass(frozen=True)
class Traffic:
    """What the runs of every target move, at the peaks: a Roofline taken apart.

    Arrays over targets, those of target runs over (targets, ``sizes``).

    sizes : tokens of a request that a target run reads
    fixed_s : seconds of the traffic apart from routed experts
    expert_s : seconds of one more touched expert in each layer
    experts, share : routed experts of a layer, and the share that a token chooses
    communication_s : between the cards
    first_s, later_s : traffic of a first and of a later draft run; ``draft_communication_s`` of one
    """

    sizes: tuple[int, ...]
    layers: Array
    fixed_s: Array
    expert_s: Array
    experts: Array
    share: Array
    communication_s: Array
    first_s: Array
    later_s: Array
    draft_communication_s: Array

    def touched(self, routing_exponent: float) -> Array:
        """Experts that a run touches, (targets, sizes): E (1 - (1 - k/E)^(B n^r))."""
        chosen = BATCH * np.array(self.sizes, float) ** routing_exponent
        touched: Array = self.experts[:, None] * (1 - (1 - self.share[:, None]) ** chosen)
        return touched


@dataclass(frozen=True)
class Law:
    """The parameters; microseconds are per layer of the target.

    memory_efficiency : e, share of the bandwidth that is reached
    layer_us : t, time of starting a layer's work, plainly and in a round
    verify_layer_us : t_verify, what a round adds a layer to verify and to manage drafts
    tree_layer_us : t_tree, what it adds where drafts are a tree
    outside_us, short_us : f_token, and f_gsm8k where answers are short
    routing_exponent : r, n tokens of a request choose as many experts as n^r independent ones
    """

    memory_efficiency: float
    layer_us: float
    verify_layer_us: float
    tree_layer_us: float
    outside_us: float
    short_us: float
    routing_exponent: float


PARAMETERS = tuple(field.name for field in fields(Law))
_START = Law(0.75, 60.0, 10.0, 10.0, 15.0, 40.0, 0.6)
_LOW = Law(0.4, 0.0, 0.0, 0.0, 0.0, 0.0, 0.2)
_HIGH = Law(1.0, 400.0, 300.0, 100.0, 200.0, 400.0, 1.0)
# The plain step counts for less than the speedup, and rows that fit badly for less than a square.
_PLAIN_WEIGHT, _ROBUST = 0.3, 0.1


@cache
def rows() -> Rows:
    """The rows at batch 8, in the order of the file."""
    found: list[dict[str, Any]] = []
    for row in reference("public_measurements"):
        tree = re.fullmatch(r"steps=(\d+);topk=(\d+);draft_tokens=(\d+)", row["gamma_or_tree"])
        plain = re.search(r"base_tput=([\d.]+)", row["note"])
        if row["source"] != "SpecForge SpecBundle" or row["batch"] != "8" or not tree or not plain:
            continue
        steps, topk, positions = (float(each) for each in tree.groups())
        found.append(
            {
                "target": row["target"],
                # One name is spelled in two ways.
                "draft": row["draft"].lower().replace(" ", ""),
                "task": row["task"],
                "configuration": "/".join(tree.groups()),
                "steps": steps,
                "topk": topk,
                "positions": positions,
                "acceptance_length": float(row["alpha_or_mean_accepted"]),
                "speedup": float(row["measured_speedup"]),
                "plain_s": BATCH / float(plain[1]),
            }
        )
    targets = tuple(dict.fromkeys(row["target"] for row in found))
    columns = {name: np.array([row[name] for row in found]) for name in found[0]}
    columns["target"] = np.array([targets.index(name) for name in columns["target"]])
    return Rows(targets, **columns)


def deployments() -> dict[str, Row]:
    """Shape, number type and degree of parallelism by target."""
    return {row["target"]: row for row in reference("specbundle_parallelism")}


def shape_of(deployment: Row) -> Shape:
    found = shape(deployment["shape"])
    return found.at(precision_for(found, deployment["dtype"])) if deployment["dtype"] else found


def traffic(targets: Sequence[str], tensor: Mapping[str, int]) -> Traffic:
    """Of every target on so many cards."""
    sizes = tuple(sorted({1, *(int(size) for size in rows().positions)}))
    each = [_traffic(shape_of(deployments()[name]), tensor[name], sizes) for name in targets]
    return Traffic(sizes, **{name: np.array([one[name] for one in each]) for name in each[0]})


def _traffic(target: Shape, tensor: int, sizes: Sequence[int]) -> dict[str, Any]:
    card, parallel = accelerator(CARD), Parallelism(tensor=tensor)

    def run(model: Shape, tokens: int, **more: Any) -> Any:
        return roofline(model, card, tokens, BATCH, CONTEXT, parallel=parallel, **more)

    runs = [run(target, tokens) for tokens in sizes]
    # Traffic is linear in the experts that are touched: two ways of choosing give the slope.
    alike = run(target, sizes[-1], routing_exponent=0.0)
    more = runs[-1].experts - alike.experts
    expert = (runs[-1].bytes - alike.bytes) / more if more else 0.0
    routed = next((layer for layer in target.layers if layer.experts), None)
    head = draft_shapes(Eagle3(draft_vocab=_DRAFT_VOCABULARY), target, 1)
    assert head is not None
    first, later = (run(model, 1, logits=1) for model in (head.first, head.later))
    return {
        "layers": float(len(target.layers)),
        "fixed_s": [(one.bytes - expert * one.experts) / card.bandwidth for one in runs],
        "expert_s": expert / card.bandwidth,
        "experts": float(routed.experts) if routed else 0.0,
        "share": routed.experts_per_token / routed.experts if routed else 0.0,
        "communication_s": [one.communication_s for one in runs],
        "first_s": first.memory_s,
        "later_s": later.memory_s,
        "draft_communication_s": later.communication_s,
    }


def times(found: Rows, moved: Traffic, law: Law) -> tuple[Array, Array]:
    """Seconds between two tokens of a request by row: plainly, and with drafts."""
    layers, at = moved.layers[found.target], found.target
    size = np.searchsorted(moved.sizes, found.positions)
    read_s = moved.fixed_s + moved.expert_s[:, None] * moved.touched(law.routing_exponent)
    run_s = read_s / law.memory_efficiency + moved.communication_s
    first, later = (
        each[at] / law.memory_efficiency + moved.draft_communication_s[at]
        for each in (moved.first_s, moved.later_s)
    )
    drafts = first + (found.steps - 1) * later + found.steps * 2e-6 * law.layer_us
    tree_us = law.tree_layer_us * (found.topk > 1)
    launch = 1e-6 * layers * (law.layer_us + law.verify_layer_us + tree_us)
    outside = 1e-6 * layers * (law.outside_us + law.short_us * found.short)
    plain = run_s[at, 0] + 1e-6 * layers * law.layer_us
    return plain + outside, (run_s[at, size] + launch + drafts) / found.acceptance_length + outside


def speedups(found: Rows, moved: Traffic, law: Law) -> Array:
    plain, drafted = times(found, moved, law)
    return plain / drafted


def fit(
    found: Rows,
    moved: Traffic,
    used: Mask,
    start: Law = _START,
    routing_exponent: float | None = None,
) -> Law:
    """The law from the rows that are ``used``, by robust least squares of logarithms.

    routing_exponent : held there, or fitted where None
    """
    count = len(PARAMETERS) - (routing_exponent is not None)
    low, high, first, scale = (
        np.array(astuple(each)[:count]) for each in (_LOW, _HIGH, start, _START)
    )

    def law(values: Array) -> Law:
        held = () if routing_exponent is None else (routing_exponent,)
        return Law(*(float(value) for value in values), *held)

    def residuals(values: Array) -> Array:
        plain, drafted = times(found, moved, law(values))
        speed = np.log(plain / drafted / found.speedup)[used]
        return np.concatenate([speed, _PLAIN_WEIGHT * np.log(plain / found.plain_s)[used]])

    inside = np.clip(first, low + 1e-6, high - 1e-6)
    best = least_squares(
        residuals, inside, bounds=(low, high), loss="soft_l1", f_scale=_ROBUST, x_scale=scale
    )
    return law(best.x)
