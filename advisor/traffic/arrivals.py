"""Rate and burstiness of arrivals."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from advisor.traffic.trace import Arrivals

WINDOWS = 60
_MIN_FOR_VARIATION = 3


def arrivals(offsets_s: Sequence[float]) -> Arrivals | None:
    """Figures of arrival offsets (any order); None below two arrivals or when all are at once.

    The rate is gaps over span. The peak rate is that of the busiest of 60 equal windows. The
    variation of the gaps is their standard deviation over their mean (handbook 5.2).
    """
    times = np.sort(np.asarray(offsets_s, dtype=np.float64))
    span_s = float(times[-1] - times[0]) if len(times) else 0.0
    if span_s <= 0:
        return None
    gaps = np.diff(times)
    places = np.minimum((times - times[0]) * WINDOWS // span_s, WINDOWS - 1).astype(int)
    busiest = int(np.bincount(places).max())
    return Arrivals(
        span_s=span_s,
        rate_per_s=len(gaps) / span_s,
        interarrival_cv=(
            float(gaps.std() / gaps.mean()) if len(times) >= _MIN_FOR_VARIATION else None
        ),
        peak_rate_per_s=busiest * WINDOWS / span_s,
        burstiness_ratio=busiest * WINDOWS / len(times),
        peak_simultaneous=max(Counter(times.tolist()).values()),
    )
