"""How long ranks of one server take to add up a message, by card and number of ranks.

Handbook 3.2: measured in CUDA graphs in bfloat16, vLLM's own kernel or NCCL as vLLM chooses. A
straight line of latency and bandwidth is wrong between 64 KiB and 32 MiB; the tables are
interpolated in logarithms of both.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from advisor.errors import InvalidInput
from advisor.units import GB, KIB, MIB

Floats: TypeAlias = NDArray[np.float64]
_MICRO = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class AllReduce:
    """Seconds of one all-reduce among `ranks` by message size, on rising knots.

    Below the first knot `floor_s` is the least; beyond the last one bytes cost what
    `bus_bytes_per_s` says. `source` tells where the knots come from.
    """

    ranks: int
    floor_s: float
    bus_bytes_per_s: float
    message_bytes: tuple[float, ...]
    latency_s: tuple[float, ...]
    source: str

    def __post_init__(self) -> None:
        if self.ranks < 2:  # noqa: PLR2004
            raise InvalidInput("all_reduce.ranks", "one rank has nobody to talk to")
        rising = all(
            bool((np.diff(knots) > 0).all()) for knots in (self.message_bytes, self.latency_s)
        )
        if not rising or len(self.message_bytes) != len(self.latency_s) or not self.latency_s:
            raise InvalidInput("all_reduce", "needs rising knots of one length")

    def seconds(self, message_bytes: Floats) -> Floats:
        """Seconds of one message, element by element; an empty one takes none."""
        sizes = np.asarray(message_bytes, dtype=np.float64)
        safe = np.maximum(sizes, 1.0)
        knots = np.log(np.array(self.message_bytes))
        inside = np.exp(np.interp(np.log(safe), knots, np.log(np.array(self.latency_s))))
        moved = 2 * (self.ranks - 1) / self.ranks / self.bus_bytes_per_s
        beyond = np.maximum(0.0, safe - self.message_bytes[-1]) * moved
        # Below the first knot from the floor of an empty message up to it.
        first_bytes, first_s = self.message_bytes[0], self.latency_s[0]
        low = self.floor_s + (first_s - self.floor_s) * np.minimum(1.0, safe / first_bytes)
        found = np.where(safe < first_bytes, low, inside + beyond)
        return np.asarray(np.where(sizes > 0, found, 0.0))


_SIZES = (64 * KIB, 512 * KIB, 2 * MIB, 8 * MIB, 32 * MIB, 128 * MIB)
_MEASURED = "vLLM kernels measured by aiconfigurator 0.12, handbook 3.2"
_TWO_NUMBERS = "latency and bandwidth only, handbook 3.2; in between assumed"


def _measured(floor_us: float, bus_gb_per_s: float, *latency_us: float, ranks: int) -> AllReduce:
    return AllReduce(
        ranks=ranks,
        floor_s=floor_us * _MICRO,
        bus_bytes_per_s=bus_gb_per_s * GB,
        message_bytes=tuple(float(size) for size in _SIZES[: len(latency_us)]),
        latency_s=tuple(value * _MICRO for value in latency_us),
        source=_MEASURED,
    )


def line(*, ranks: int, floor_s: float, bus_bytes_per_s: float, source: str) -> AllReduce:
    """A straight line of latency and bandwidth, for links that nobody measured size by size."""
    moved = 2 * (ranks - 1) / ranks / bus_bytes_per_s
    return AllReduce(
        ranks=ranks,
        floor_s=floor_s,
        bus_bytes_per_s=bus_bytes_per_s,
        message_bytes=tuple(float(size) for size in _SIZES),
        latency_s=tuple(floor_s + size * moved for size in _SIZES),
        source=source,
    )


# Key of a card in the catalogue, then ranks. The L40S rows are one server without peer links.
ALL_REDUCE: Mapping[tuple[str, int], AllReduce] = {
    ("a100-80-sxm", 2): _measured(5.0, 199, 5.5, 8.0, 15.2, 90, 222, 746, ranks=2),
    ("a100-80-sxm", 4): _measured(5.5, 221, 6.6, 14.5, 26.0, 118, 288, 996, ranks=4),
    ("a100-80-sxm", 8): _measured(6.5, 228, 8.4, 18.9, 27.9, 129, 364, 1161, ranks=8),
    ("h100-sxm", 2): _measured(4.2, 334, 4.5, 6.3, 12.4, 45, 156, 469, ranks=2),
    ("h100-sxm", 4): _measured(4.8, 355, 5.2, 11.4, 18.6, 54, 191, 619, ranks=4),
    ("h100-sxm", 8): _measured(5.3, 469, 6.4, 12.0, 19.4, 51, 178, 577, ranks=8),
    ("h200-sxm", 2): _measured(4.4, 330, 4.8, 6.3, 12.4, 43, 145, 463, ranks=2),
    ("h200-sxm", 4): _measured(4.7, 356, 5.4, 10.5, 17.8, 52, 180, 609, ranks=4),
    ("h200-sxm", 8): _measured(5.2, 470, 6.6, 11.1, 18.1, 48, 166, 562, ranks=8),
    ("b200", 2): _measured(6.8, 565, 7.1, 9.4, 25.3, 51, 87, 280, ranks=2),
    ("b200", 4): _measured(7.3, 641, 7.4, 18.0, 23.8, 43, 119, 353, ranks=4),
    # 512 KiB took 26.1 us, longer than 2 MiB: that knot is left out, more bytes never take less.
    ("b200", 8): AllReduce(
        ranks=8,
        floor_s=8.2 * _MICRO,
        bus_bytes_per_s=722 * GB,
        message_bytes=tuple(float(size) for size in _SIZES if size != 512 * KIB),
        latency_s=tuple(value * _MICRO for value in (8.6, 20.7, 39, 111, 442)),
        source=_MEASURED,
    ),
    ("l40s", 2): _measured(5.3, 19, 9.9, 32, 117, 450, 1777, 7007, ranks=2),
    ("l40s", 4): _measured(12.7, 4, 37, 219, 841, 3322, 13598, ranks=4),
    ("l40s", 8): _measured(23, 2, 73, 445, 2080, 8168, 30062, ranks=8),
    ("rtx-pro-6000", 2): line(
        ranks=2, floor_s=4.3e-6, bus_bytes_per_s=39 * GB, source=_TWO_NUMBERS
    ),
    ("rtx-pro-6000", 4): line(
        ranks=4, floor_s=13.3e-6, bus_bytes_per_s=30 * GB, source=_TWO_NUMBERS
    ),
    ("rtx-pro-6000", 8): line(ranks=8, floor_s=26e-6, bus_bytes_per_s=24 * GB, source=_TWO_NUMBERS),
}
# Cards whose links and kernels are those of a measured one.
_SAME_LINKS: Mapping[str, str] = {
    "a100-40-sxm": "a100-80-sxm",
    "gb200": "b200",
    "b300": "b200",
}


def all_reduce(card: str, ranks: int) -> AllReduce | None:
    """The table of a card in the catalogue; None where nobody measured that many ranks."""
    return ALL_REDUCE.get((_SAME_LINKS.get(card, card), ranks))
