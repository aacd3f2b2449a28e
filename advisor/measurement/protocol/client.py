"""Whether the load client, not the engine, set the figures of a load."""

import math
from dataclasses import replace

from advisor.measurement.records import ClientHealth

# One thread that is busy for this share of the time keeps arrivals waiting for two and a half of
# its own service times in the mean (M/D/1); above it the wait grows without limit.
CPU_SHARE = 0.85
# Timers and the scheduler of a quiet machine are late by up to some milliseconds at the 99th
# percentile: nothing below this is blamed on the client.
LEAST_DELAY_S = 0.005
# A wait above this is seen in any limit that users set (the tightest is 450 ms for a first token).
MOST_DELAY_S = 0.025
# Nor, of the median delay, anything below this: opening a socket and being scheduled takes a
# millisecond or two on a processor that the engine keeps busy.
LEAST_MEDIAN_S = 0.0025
# What share of the median time to first token the client's own delays may be.
TAIL_SHARE, MEDIAN_SHARE = 0.1, 0.02


def judge_client(health: ClientHealth, *, ttft_s: float | None = None) -> ClientHealth:
    """The health with `limited` and `reason` set.

    Limited is a client whose busiest process had no idle time left, or whose delays are a tenth of
    the median `ttft_s` at their 99th percentile or a fiftieth in the median. Late sends raise TTFT
    and lower the load; a late event loop stamps frames too late. Without `ttft_s` the tail of the
    delays may be 25 ms. What was judged limited before stays so.
    """
    if health.limited:
        return health
    tail_s = MOST_DELAY_S
    if ttft_s is not None:
        tail_s = min(MOST_DELAY_S, max(LEAST_DELAY_S, TAIL_SHARE * ttft_s))
    reason = None
    if health.cpu_share > CPU_SHARE:
        reason = f"its busiest process used {health.cpu_share:.0%} of a core"
    elif health.send_delay_p99_s > tail_s:
        reason = f"sends were up to {health.send_delay_p99_s * 1e3:.1f} ms late (99th percentile)"
    elif health.loop_delay_p99_s > tail_s:
        reason = f"its timers were {health.loop_delay_p99_s * 1e3:.1f} ms late (99th percentile)"
    elif health.send_delay_p50_s > max(LEAST_MEDIAN_S, MEDIAN_SHARE * (ttft_s or math.inf)):
        reason = f"half of the sends were {health.send_delay_p50_s * 1e3:.1f} ms late or more"
    return health if reason is None else replace(health, limited=True, reason=reason)
