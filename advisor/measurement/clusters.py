"""How many independent observations a sample is worth whose members come in groups.

Turns of one session share their text and the cache, drafts of one request its text: they resemble
each other, and an interval from their plain number would be too narrow (handbook 6.1, 11.2).
"""

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

from advisor.errors import InvalidInput

Floats = NDArray[np.float64]

_Z95 = float(ndtri(0.975))
# The correlation inside a group that is assumed before the sample shows one, worth so many groups.
# Acceptance of drafts differed between requests of one data set about that much (handbook 6.1).
_PRIOR_CORRELATION, _PRIOR_GROUPS = 0.1, 10.0


def effective_count(successes: Floats, trials: Floats) -> float:
    """Independent trials that the trials of all groups are worth, at most their number.

    Both arrays hold one number per group. The design effect (Kish, 1965) is ``1 + (m - 1) rho``
    with the group size m, weighted by size, and the correlation rho that the sample shows, mixed
    with a prior where groups are few; a t quantile takes the place of the normal one. Groups of one
    trial each are independent. No group at all raises `InvalidInput`.
    """
    total = float(trials.sum())
    if total <= 0 or (successes < 0).any() or (successes > trials).any():
        raise InvalidInput("trials", f"{successes.sum()} of {total} in {len(trials)} groups")
    kept = trials > 0
    hits, sizes = successes[kept], trials[kept]
    if sizes.max() <= 1:
        return total
    groups = len(sizes)
    if groups == 1:
        return 1.0
    size = float((sizes**2).sum()) / total
    seen = _correlation(hits, sizes, size)
    mixed = (groups * seen + _PRIOR_GROUPS * _PRIOR_CORRELATION) / (groups + _PRIOR_GROUPS)
    if float(hits.sum()) in {0.0, total}:
        mixed = _PRIOR_CORRELATION  # a sample that is all alike shows no correlation
    effect = 1 + (size - 1) * max(seen, mixed)
    few = float(stdtrit(groups - 1, 0.975)) / _Z95
    return min(total, total / (effect * few**2))


def _correlation(hits: Floats, sizes: Floats, size: float) -> float:
    """Correlation inside the groups, from 0 to 1, by the spread between them."""
    total, groups = float(sizes.sum()), len(sizes)
    share = float(hits.sum()) / total
    if not 0 < share < 1:
        return 0.0
    between = groups / (groups - 1) * float(((hits - share * sizes) ** 2).sum())
    effect = between / (total * share * (1 - share))
    return float(np.clip((effect - 1) / (size - 1), 0.0, 1.0)) if size > 1 else 0.0


def assumed_count(trials: float, groups: int) -> float:
    """The same where only the total is known: groups of one size with the prior's correlation."""
    if groups < 1 or trials <= 0:
        raise InvalidInput("trials", f"{trials} in {groups} groups")
    if groups == 1:
        return min(trials, 1.0)
    few = float(stdtrit(groups - 1, 0.975)) / _Z95
    effect = 1 + max(0.0, trials / groups - 1) * _PRIOR_CORRELATION
    return min(trials, trials / (effect * few**2))
