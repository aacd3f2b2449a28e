"""Whether two measured loads may be compared, and what a prefix cache may be credited with."""

from dataclasses import dataclass

from advisor.measurement.points import prefix_hit_share
from advisor.measurement.records import EngineCounters, LoadPoint

# Two passes over one set of requests with a cache reset between them hit alike but for what was
# evicted; a warm second pass hits most of what the first one computed (case S-10: 0 % and 98 %).
_WARMER = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixCredit:
    """Share of the prompt tokens that prefix caching saved; None with the reason."""

    share: float | None
    reason: str | None = None


def prefix_credit(counters: EngineCounters) -> PrefixCredit:
    """What a load's counters credit to prefix caching.

    Nothing after preemptions, since a request that is computed again hits its own blocks
    (case S-11).
    """
    share = prefix_hit_share(counters)
    if share is not None:
        return PrefixCredit(share=share)
    if counters.preemptions > 0:
        return PrefixCredit(
            share=None, reason=f"recompute after preemption ({counters.preemptions} preemptions)"
        )
    return PrefixCredit(share=None, reason="no prompt token was looked up")


def pair_flaws(
    before: LoadPoint, after: LoadPoint, *, caching_differs: bool = False
) -> tuple[str, ...]:
    """Why the two points do not show what the change between them does; none where they do.

    `caching_differs` says that prefix caching itself is what changed: then the shares must differ.
    """
    flaws = []
    if before.subset_digest != after.subset_digest:
        flaws.append("not comparable: they replayed different requests")
    if (before.open_loop is None) != (after.open_loop is None):
        flaws.append("not comparable: one is a closed loop, the other an open one")
    shares = prefix_hit_share(before.counters), prefix_hit_share(after.counters)
    if not caching_differs and shares[0] is not None and shares[1] is not None:
        flaws += _warmth(shares[0], shares[1])
    return tuple(flaws)


def _warmth(before: float, after: float) -> list[str]:
    if abs(after - before) <= _WARMER:
        return []
    which = "second" if after > before else "first"
    text = (
        f"not comparable: the {which} run found a warm prefix cache ({before:.0%} and {after:.0%}"
        " of prompt tokens cached); reset the cache or restart the engine between them"
    )
    return [text]
