"""How SGLang's adaptive steps follow what was accepted (compiled)."""

from __future__ import annotations

import numpy as np

from specsim.checks import Ints
from specsim.serving.adaptive_steps import CompiledSteps
from specsim.serving.compiled import inner


@inner
def follow_acceptance(steps: CompiledSteps, gammas: Ints, batch: int, accepted: int) -> None:
    """Count a round of ``batch`` requests, of whose drafts so many were accepted in all, and
    change the draft lengths of its slot, in ``gammas`` by batch, where it is time to.
    """
    number = steps.of_batch[batch]
    slot = steps.slots[number]
    if steps.candidates[number, slot.current] > 0:
        newest = accepted / batch
        slot.average = (1.0 - slot.ema_alpha) * slot.average + slot.ema_alpha * newest
    slot.rounds += 1
    since = slot.rounds - slot.warmup_batches
    if since <= 0 or since % slot.update_interval != 0:
        return
    found = _next_place(steps, number)
    if found == slot.current:
        return
    slot.current = found
    for each in range(gammas.size):
        if steps.of_batch[each] == number:
            gammas[each] = steps.candidates[number, found]


@inner
def _next_place(steps: CompiledSteps, number: int) -> int:
    """The place among the candidates of a slot that its average asks for."""
    slot = steps.slots[number]
    candidates = steps.candidates[number]
    last: int = slot.candidates - 1
    old: int = slot.current
    if candidates[old] == 0:
        # Nothing is accepted where nothing is drafted: try again.
        found = min(old + 1, last)
        if candidates[found] > 0 and slot.average < 0:
            slot.average = candidates[found] - 1.0
        return found
    average = slot.average
    found = old
    while found > 0:
        below = candidates[found - 1]
        limit = (0.5 if below == 0 else below - 0.5) + slot.down_hysteresis
        if average > limit:
            break
        found -= 1
    if found == old:
        while found < last and average > candidates[found] - 0.5 + slot.up_hysteresis:
            found += 1
    if slot.ceiling_coeff > 0:
        ceiling = max(1, int(np.ceil(average * slot.ceiling_coeff)))
        if ceiling < candidates[found] <= candidates[old]:
            while found > 0 and candidates[found] > ceiling:
                found -= 1
    return found
