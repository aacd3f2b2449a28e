"""Percentiles of what requests were seen to take. What was not seen is counted, never zero."""

from collections.abc import Sequence

import numpy as np

from advisor.traffic.figures import Quantiles


def quantiles(values: Sequence[float | None]) -> Quantiles | None:
    """Linear-interpolated percentiles of the known values; None when none is known.

    Unknown values (None) are counted in `unknown` and enter no figure (case S-04).
    """
    known = [value for value in values if value is not None]
    if not known:
        return None
    sample = np.asarray(known, dtype=float)
    p5, p25, p50, p75, p95 = (float(at) for at in np.percentile(sample, (5, 25, 50, 75, 95)))
    return Quantiles(
        count=len(known),
        unknown=len(values) - len(known),
        mean=float(sample.mean()),
        p5=p5,
        p25=p25,
        p50=p50,
        p75=p75,
        p95=p95,
        max=float(sample.max()),
    )
