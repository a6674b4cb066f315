"""``specsim.validate`` with a ``SyntheticCheck``: batches at a synthetic acceptance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from specsim.api.checked_profile import CheckedProfile, draft_lengths
from specsim.api.progress import steps
from specsim.api.result import Row
from specsim.api.validation import SyntheticCheck, Validation
from specsim.batching.drawn_cost import DrawnLoadCost
from specsim.batching.measured_cost import MeasuredLoadCost
from specsim.batching.source import Source
from specsim.batching.workload import BatchWorkload
from specsim.checks import InvalidArgumentError
from specsim.profiles import Profile


def validate_batches(asked: CheckedProfile, check: SyntheticCheck) -> Validation:
    """Every cell of the profile's grid, decoded and predicted."""
    source = Source(check.alpha, None, asked.path, check.temperature, check.mode)
    grids = [_Grid.of(asked.profile, workload, check) for workload in source.workloads()]
    device, dtype = asked.models.place()
    from calibrate.models.load import load_measured
    from calibrate.validate.batching import validate_cell
    from calibrate.validate.findings import synthetic_findings

    trusted = asked.models.trust_remote_code
    target, draft = load_measured(asked.profile, device, dtype, trusted)
    run = asked.begin(check)
    advance = steps(run.watch.progress, "decoding", sum(len(grid.cells) for grid in grids))
    rows: list[Row] = []
    for grid in grids:
        for batch, context in grid.cells:
            rows += validate_cell(
                target,
                draft,
                batch,
                context,
                grid.gammas,
                grid.workload.survival.tolist(),
                grid.workload.temperature or 0.0,
                check.rounds,
                grid.cost,
                grid.workload.basis.error(batch, context),
                check.seed,
                run.checkpoint,
                **_drawn(asked.profile, grid.workload.temperature or 0.0),
            )
            advance()
    return asked.result(check, rows, synthetic_findings(rows, asked.tolerance), run.done())


def _drawn(profile: Profile, temperature: float) -> dict[str, Any]:
    """How the profile's tokens were drawn and its drafts verified, which host times are of."""
    for measured in profile.acceptance:
        sampling = measured.sampling
        if sampling.temperature == temperature:
            return {
                "top_k": sampling.top_k,
                "top_p": sampling.top_p,
                "acceptance_law": measured.acceptance_law,
            }
    return {}  # costs alone


@dataclass(frozen=True)
class _Grid:
    """What is decoded of one workload: draft lengths, and batch and context of each cell."""

    workload: BatchWorkload
    cost: DrawnLoadCost
    gammas: tuple[int, ...]
    cells: list[tuple[int, int]]

    @staticmethod
    def of(profile: Profile, workload: BatchWorkload, check: SyntheticCheck) -> _Grid:
        from calibrate.measure.grid import room

        assert isinstance(workload.cost, MeasuredLoadCost)
        cost = DrawnLoadCost.of(profile, workload.temperature or 0.0, workload.cost)
        assert workload.context is not None, "a profile says what its models can read"
        gammas = draft_lengths(check.gamma, workload.gamma_max)
        most = workload.context - room(max(gammas))
        contexts = sorted(set(workload.contexts(check.context)))
        if contexts[-1] > most:
            raise InvalidArgumentError(
                f"context must be <= {most} with these models, got {contexts[-1]}"
            )
        batches = sorted(set(workload.batches(check.batch)))
        cells = [(batch, context) for context in contexts for batch in batches]
        return _Grid(workload, cost, gammas, cells)
