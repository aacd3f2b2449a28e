"""Whether what else ran on the machine disturbed a load."""

# The rule: another process that used more than this share of the engine's core. A CPU
# engine keeps every core busy, so what others used on any core was taken from it.
DISTURBING_CORES = 0.2
# Time that the hypervisor gave to others is lost at once.
DISTURBING_STEAL_SHARE = 0.05


def disturbed(*, neighbour_cpu_s: float, span_s: float, steal_share: float | None) -> bool:
    """Whether other processes, or other machines on the host, took too much over the span."""
    if span_s <= 0:
        return False
    return neighbour_cpu_s / span_s > DISTURBING_CORES or (
        (steal_share or 0.0) > DISTURBING_STEAL_SHARE
    )
