"""The seconds of one step, part by part (compiled)."""

from __future__ import annotations

import numpy as np

from specsim.checks import Floats, Ints
from specsim.serving.compiled import compiled, inlined
from specsim.serving.step_model import CompiledTerms

_GRAPH, _EAGER = 1, 2


@inlined
def part_seconds(
    terms: CompiledTerms,
    quantities: Floats,
    eager: bool,
    parts: Floats,
    lower: Ints,
    weight: Floats,
) -> None:
    """Write the seconds of every part into ``parts``.

    quantities : in the order of QUANTITIES
    eager : whether no graph holds the step
    lower, weight : room for four numbers each
    """
    for part in range(parts.size):
        parts[part] = 0.0
    for term in range(terms.part.size):
        when = terms.when[term]
        if (when == _GRAPH and eager) or (when == _EAGER and not eager):
            continue
        scale = 1.0
        if terms.per[term] >= 0:
            scale = quantities[terms.per[term]]
            if scale == 0.0:
                continue
        dimensions = 0
        while dimensions < 4 and terms.axes[term, dimensions] >= 0:
            x = quantities[terms.axes[term, dimensions]]
            first, count = terms.first_knot[term, dimensions], terms.knot_count[term, dimensions]
            # The last interval whose lower end is <= x, of those that have an upper end.
            low, high = 0, max(count - 2, 0)
            while low < high:
                middle = (low + high + 1) // 2
                if terms.knots[first + middle] <= x:
                    low = middle
                else:
                    high = middle - 1
            lower[dimensions] = low
            weight[dimensions] = 0.0
            if count > 1 and x > terms.knots[first + low]:
                width = terms.knots[first + low + 1] - terms.knots[first + low]
                weight[dimensions] = (x - terms.knots[first + low]) / width
            dimensions += 1
        if dimensions == 1:  # the most common, and a third of the work
            first = terms.first_value[term] + lower[0]
            found = terms.values[first]
            if weight[0] != 0.0:
                found = (1.0 - weight[0]) * found + weight[0] * terms.values[first + 1]
            parts[terms.part[term]] += scale * found
            continue
        found = 0.0
        for corner in range(1 << dimensions):
            share = 1.0
            place = 0
            for axis in range(dimensions):
                upper = (corner >> axis) & 1
                share *= weight[axis] if upper else 1.0 - weight[axis]
                place = place * terms.knot_count[term, axis] + lower[axis] + upper
                if share == 0.0:
                    break
            if share != 0.0:
                found += share * terms.values[terms.first_value[term] + place]
        parts[terms.part[term]] += scale * found
    if eager:
        for part in range(parts.size):
            parts[part] = max(parts[part], terms.least_eager[part])


@compiled
def step_seconds(terms: CompiledTerms, quantities: Floats, eager: bool, parts: Floats) -> None:
    """The same for one step alone."""
    part_seconds(terms, quantities, eager, parts, np.zeros(4, dtype=np.int64), np.zeros(4))
