"""How many requests a simulation needs for what it shows to last.

The engine starts empty and fills for as long as a request stays.  A run that ends by then has never
seen the load that it is of, and shows fewer replicas to be enough than are.
"""

from __future__ import annotations

from math import ceil

from specsim.serving.planning.settling import WARMUP
from specsim.serving.workload_summary import WorkloadSummary

# Mean stays of a request in which requests arrive after the warm-up.
STAYS = 10
# At least, and at most where nobody asks for more.
LEAST, MOST = 4000, 60_000


def requests_wanted(rate: float, stay_s: float) -> int:
    """Requests at ``rate`` per second that come for ``STAYS`` stays of ``stay_s`` after the
    warm-up, ``LEAST`` or more.
    """
    return max(LEAST, ceil(rate * STAYS * stay_s / (1.0 - WARMUP)))


def lasts(requests: WorkloadSummary, stay_s: float) -> bool:
    """Whether requests come for as long, but for the luck of when they arrive."""
    return requests.duration_s * (1.0 - WARMUP) >= 0.9 * STAYS * stay_s
