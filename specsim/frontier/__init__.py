"""Where to defer: quality against rejection and latency, from labelled positions.

    >>> from specsim.frontier import Comparison, read_positions
    >>> positions = read_positions(Path("positions.parquet"))  # doctest: +SKIP
    >>> comparison = Comparison.of(positions, "0-1", "unscaled")  # doctest: +SKIP
    >>> comparison.least_rejection(quality=0.5)  # doctest: +SKIP

``positions`` reads the table, ``sweep`` has the rules' curves and the optimum, ``latency`` turns
rejections into time, ``choice`` picks settings and puts intervals on them, ``bounds`` holds the
papers' regret bounds.
"""

from specsim.frontier.bounds import (
    PlugInRegret,
    bound_0_1,
    bound_log,
    deferral_risk,
    least_risk,
    plug_in_regret,
)
from specsim.frontier.choice import OPTIMUM, Choice, Comparison
from specsim.frontier.latency import BlockPrices
from specsim.frontier.positions import LabelledPositions, PositionsError, read_positions
from specsim.frontier.sweep import (
    Curve,
    Sweep,
    best_within,
    frontier,
    mean_regret,
    optimum,
    sweeps,
)
