"""A device as its driver describes it, and what of the catalogue it is."""

import re
from dataclasses import dataclass, replace

from advisor.estimate import Estimate
from advisor.hardware.card import Card
from advisor.hardware.catalogue import card_named
from advisor.hardware.device import DeviceFacts
from advisor.units import bytes_text

# A power-capped H100 lost so much of its rate (handbook section 10).
_CAPPED = 0.8
_FULL_POWER = 0.97
_SAME_MEMORY = 0.08
# A slice ``2g.20gb`` has 2 of 7 parts of the arithmetic, and its part of memory and bandwidth.
_COMPUTE_SLICES = 7
_PROFILE = re.compile(r"\b(\d)g\.(\d+)gb\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenDevice:
    """What torch, NVML or ``nvidia-smi`` say of one device; None where they say nothing.

    `name` is the driver's; `slice_name` is the MIG profile of the slice that is used. Clocks in
    MHz, power in watts. `nvlink_links` counts active links to other devices.
    """

    name: str
    memory_bytes: int | None = None
    compute_capability: str | None = None
    multiprocessors: int | None = None
    slice_name: str | None = None
    mig_enabled: bool | None = None
    power_limit_watts: float | None = None
    default_power_watts: float | None = None
    sm_clock_mhz: float | None = None
    most_sm_clock_mhz: float | None = None
    pcie_generation: int | None = None
    most_pcie_generation: int | None = None
    pcie_lanes: int | None = None
    most_pcie_lanes: int | None = None
    nvlink_links: int | None = None
    driver: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveDevice:
    """A seen device with its card of the catalogue (None: not in it) and what limits it here."""

    seen: SeenDevice
    card: Card | None
    notes: tuple[str, ...]

    def facts(self) -> DeviceFacts | None:
        """The card's figures as far as they hold here: own memory, slice, power; None: no card.

        What a limit takes away lowers the low end, as nobody measured it.
        """
        if self.card is None:
            return None
        base, part = self.card.facts, _slice(self.seen)
        compute, memory = (1.0, 1.0) if part is None else part
        least = _CAPPED if _is_capped(self.seen, self.card) else 1.0
        stated = round(base.memory_bytes * memory)
        return replace(
            base,
            memory_bytes=self.seen.memory_bytes or stated,
            bandwidth_bytes_per_s=_scaled(base.bandwidth_bytes_per_s, memory, 1.0),
            matrix_rate_flops_per_s={
                dtype: _scaled(rate, compute, least)
                for dtype, rate in base.matrix_rate_flops_per_s.items()
            },
        )


def recognise(seen: SeenDevice) -> LiveDevice:
    """Which card a device is, and everything about it that keeps it from the card's figures."""
    found = card_named(seen.name)
    notes = [note for note in (_unknown(seen, found), *_limits(seen, found)) if note is not None]
    return LiveDevice(seen=seen, card=found, notes=tuple(notes))


def describe(live: LiveDevice) -> str:
    """One line for a person: name, memory, key of the catalogue, notes."""
    size = live.seen.memory_bytes
    parts = [live.seen.name if size is None else f"{live.seen.name}, {bytes_text(size)}"]
    if live.card is not None:
        parts.append(f"{live.card.key} of the catalogue")
    return "; ".join((*parts, *live.notes))


def _unknown(seen: SeenDevice, found: Card | None) -> str | None:
    if found is None:
        return f"{seen.name} is not in the catalogue: measure it"
    size = seen.memory_bytes
    if size is None or seen.mig_enabled or _slice(seen) is not None:
        return None
    if abs(size / found.facts.memory_bytes - 1) <= _SAME_MEMORY:
        return None
    return f"{bytes_text(size)} instead of the card's {bytes_text(found.facts.memory_bytes)}"


def _limits(seen: SeenDevice, found: Card | None) -> tuple[str | None, ...]:
    return (_sliced(seen), _power(seen, found), _clock(seen), _bus(seen))


def _sliced(seen: SeenDevice) -> str | None:
    part = _slice(seen)
    if part is not None:
        return f"a MIG slice: {part[0]:.0%} of the arithmetic, {part[1]:.0%} of the memory"
    if seen.mig_enabled:
        return "MIG is on: an engine gets a slice of this card"
    return None


def _power(seen: SeenDevice, found: Card | None) -> str | None:
    if not _is_capped(seen, found):
        return None
    usual = seen.default_power_watts or (found.watts if found is not None else 0.0)
    return f"power limit {seen.power_limit_watts:.0f} W of {usual:.0f} W: up to 20 % slower"


def _is_capped(seen: SeenDevice, found: Card | None) -> bool:
    usual = seen.default_power_watts or (None if found is None else found.watts)
    limit = seen.power_limit_watts
    return usual is not None and limit is not None and limit < _FULL_POWER * usual


def _clock(seen: SeenDevice) -> str | None:
    # The clock that is set, not the present one: an idle device clocks down.
    most, limit = seen.most_sm_clock_mhz, seen.sm_clock_mhz
    if most is None or limit is None or limit >= _FULL_POWER * most:
        return None
    return f"clock limited to {limit:.0f} of {most:.0f} MHz"


def _bus(seen: SeenDevice) -> str | None:
    lanes, most = seen.pcie_lanes, seen.most_pcie_lanes
    if lanes is None or most is None or lanes >= most:
        return None
    return f"PCIe x{lanes} instead of x{most}"


def _slice(seen: SeenDevice) -> tuple[float, float] | None:
    """Shares of arithmetic and memory of a MIG slice."""
    found = _PROFILE.search((seen.slice_name or seen.name).lower())
    whole = card_named(seen.name)
    if found is None or whole is None:
        return None
    gib = float(found.group(2))
    eighths = max(1, round(8 * gib * 1e9 / whole.stated_memory_bytes))
    return int(found.group(1)) / _COMPUTE_SLICES, min(1.0, eighths / 8)


def _scaled(figure: Estimate, share: float, least: float) -> Estimate:
    return replace(
        figure,
        value=figure.value * share,
        low=figure.low * share * least,
        high=figure.high * share,
    )
