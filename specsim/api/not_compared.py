"""What a check in half precision leaves out."""

from __future__ import annotations

from collections.abc import Sequence

from specsim.optimizers.workload import Workload
from specsim.profiles import Profile


def not_compared(profile: Profile, workloads: Sequence[Workload]) -> tuple[str, ...]:
    """That texts are not, where a decoder may write another one."""
    dtype = profile.software.dtype
    greedy = any(each.measured.sampling.temperature == 0 for each in workloads)
    if not greedy or dtype == "float32":
        return ()
    return (
        f"texts at temperature 0 are not compared: in {dtype} rounding hangs on how many tokens a "
        "run reads, and so may the most probable of two that are nearly alike",
    )
