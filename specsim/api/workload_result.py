"""What ``specsim.describe_workload`` returns: a workload in a few figures."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from typing import ClassVar

from specsim.api.result import Result, Row
from specsim.api.workload import workload as workload_of
from specsim.checks import integer
from specsim.serving.workload import ServingWorkload
from specsim.serving.workload_summary import WorkloadSummary


@dataclass(frozen=True, kw_only=True)
class WorkloadFigures(Result):
    """Requests in a few figures, a row: how many, how fast they come (``rate``), the coefficient of
    variation of the time between them (``interval_cv``; a Poisson process has 1), tokens of prompts
    and outputs (mean and percentiles), and, where it is known, the share of the prompts' tokens in
    blocks that an earlier request had, too (``shared``).
    """

    schema: ClassVar[str] = "specsim.workload"

    figures: WorkloadSummary

    def rows(self) -> list[Row]:
        return [dict(self.figures.row())]

    @property
    def essential(self) -> tuple[str, ...]:
        return (
            *("requests", "rate", "interval_cv", "prompt_mean", "prompt_p50", "prompt_p99"),
            *("output_mean", "output_p50", "output_p99", "shared"),
        )


def describe_workload(
    workload: ServingWorkload | str | PathLike[str], *, seed: int = 0
) -> WorkloadFigures:
    """A workload, or a file of one, in a few figures.

    seed : of what is drawn
    """
    if isinstance(workload, (str, PathLike)):
        workload = workload_of(workload)
    requests = workload.draw(integer("seed", seed))
    return WorkloadFigures(
        figures=WorkloadSummary.of(requests),
        inputs={"workload": workload.inputs, "seed": seed},
        warnings=workload.notes,
    )
