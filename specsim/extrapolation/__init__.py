"""Acceptance at other draft lengths than were measured.

curve.py       a curve beyond its last position; trends.py: how rates go on, by kind of drafter
gaps.py        the distances between rejections, exact for draft models
mixtures.py    acceptance that differs from place to place
counted.py     what counts say of such a mixture; fits.py: the likeliest; bounds.py: all of them
over_gamma.py  which of them carries counts to another length
from_file.py   the counts of an acceptance file, so carried
stated.py      rates that say which rates they are, so carried
"""

from specsim.extrapolation.curve import Extrapolation, extrapolate
from specsim.extrapolation.gaps import GapLaw
from specsim.extrapolation.over_gamma import AcceptanceOverGamma, acceptance_from_counts
from specsim.extrapolation.stated import Conditional, Marginal

__all__ = [
    "AcceptanceOverGamma",
    "Conditional",
    "Extrapolation",
    "GapLaw",
    "Marginal",
    "acceptance_from_counts",
    "extrapolate",
]
