"""Energy, clocks, temperature and throttling of the GPUs over a load, by NVML.

Without a driver or a GPU there is nothing to read: the reason is said, and a load is measured all
the same. The reading is handed in, so that a test can plant one.
"""

import importlib
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from types import TracebackType
from typing import Any, Protocol, Self

from advisor.errors import Unavailable
from probes.repeating import repeated

SAMPLE_PERIOD_S = 0.5
# A load that was throttled for less of its time is hardly another one.
THROTTLED_SHARE = 0.05
VISIBLE = "CUDA_VISIBLE_DEVICES"
_MILLI = 1e-3
_GPU_BUILD = "cuda"
# Bits of `nvmlDeviceGetCurrentClocksEventReasons` under which a GPU runs below its clock. An idle
# GPU and clocks that somebody set are no disturbance.
THROTTLE_REASONS: Mapping[int, str] = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    """One GPU at one moment; None where it does not say.

    `energy_j` counts since the driver was loaded. `throttled` names what holds the clock down.
    """

    index: int
    energy_j: float | None = None
    power_w: float | None = None
    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    temperature_c: float | None = None
    throttled: tuple[str, ...] = ()


class PowerSource(Protocol):
    """Where readings come from."""

    @property
    def driver_version(self) -> str | None:
        """The driver's version."""

    def read(self) -> tuple[GpuReading, ...]:
        """All GPUs that are looked after, now; `Unavailable` when the driver does not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerFigures:
    """What the GPUs did over a load.

    `energy_j` is the sum over them, `basis` how it was found ("counter" or "sampled power"); None
    where neither could be read, and `reason` says why. Clocks are means over samples and GPUs,
    `lowest_sm_clock_mhz` the lowest sample. `throttled` is the share of samples by reason.
    """

    energy_j: float | None = None
    basis: str | None = None
    mean_power_w: float | None = None
    sm_clock_mhz: float | None = None
    lowest_sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    highest_temperature_c: float | None = None
    throttled: Mapping[str, float] = field(default_factory=dict)
    reason: str | None = None


class NvmlSource:
    """The GPUs of this machine through the driver's library."""

    def __init__(self, library: Any, visible: str | None = None) -> None:
        """`library` is the module pynvml; `visible` is what ``CUDA_VISIBLE_DEVICES`` holds.

        `Unavailable` where there is no driver, or no GPU of those.
        """
        self._library = library
        try:
            library.nvmlInit()
            count = int(library.nvmlDeviceGetCount())
        except (library.NVMLError, OSError) as error:
            raise Unavailable(
                f"NVML does not answer: {error}", "install the NVIDIA driver"
            ) from None
        held = [(index, library.nvmlDeviceGetHandleByIndex(index)) for index in range(count)]
        wanted = None if visible is None else [name.strip() for name in visible.split(",")]
        self._handles = [
            (index, handle) for index, handle in held if self._is_wanted(index, handle, wanted)
        ]
        if not self._handles:
            raise Unavailable("there is no GPU to read", f"check {VISIBLE}")

    @property
    def driver_version(self) -> str | None:
        """The driver's version."""
        version: str | None = self._asked(self._library.nvmlSystemGetDriverVersion, str)
        return version

    def read(self) -> tuple[GpuReading, ...]:
        """All GPUs now."""
        return tuple(self._one(index, handle) for index, handle in self._handles)

    def _one(self, index: int, handle: Any) -> GpuReading:
        library = self._library
        reasons = self._asked(library.nvmlDeviceGetCurrentClocksEventReasons, int, handle) or 0
        energy = self._asked(library.nvmlDeviceGetTotalEnergyConsumption, float, handle)
        power = self._asked(library.nvmlDeviceGetPowerUsage, float, handle)
        clock, sensor = library.nvmlDeviceGetClockInfo, library.nvmlDeviceGetTemperature
        return GpuReading(
            index=index,
            energy_j=None if energy is None else energy * _MILLI,
            power_w=None if power is None else power * _MILLI,
            sm_clock_mhz=self._asked(clock, float, handle, library.NVML_CLOCK_SM),
            memory_clock_mhz=self._asked(clock, float, handle, library.NVML_CLOCK_MEM),
            temperature_c=self._asked(sensor, float, handle, library.NVML_TEMPERATURE_GPU),
            throttled=tuple(text for bit, text in THROTTLE_REASONS.items() if reasons & bit),
        )

    def _is_wanted(self, index: int, handle: Any, wanted: Sequence[str] | None) -> bool:
        """Whether ``CUDA_VISIBLE_DEVICES`` names it, by number or by the begin of its UUID."""
        if wanted is None or str(index) in wanted:
            return True
        name = self._asked(self._library.nvmlDeviceGetUUID, str, handle) or ""
        return any(text.startswith("GPU-") and name.startswith(text) for text in wanted)

    def _asked(self, function: Callable[..., Any], kind: Callable[[Any], Any], *given: Any) -> Any:
        """What the driver answers; None where this GPU does not support the question."""
        try:
            value = function(*given)
        except self._library.NVMLError:
            return None
        return kind(value.decode() if isinstance(value, bytes) else value)


def open_nvml(environment: Mapping[str, str]) -> NvmlSource:
    """The GPUs that an engine in `environment` sees; `Unavailable` says what is missing."""
    return NvmlSource(importlib.import_module("pynvml"), environment.get(VISIBLE))


@dataclass
class PowerMeter:
    """Reads the GPUs while a load runs: ``with PowerMeter(source) as meter``, then `figures`.

    `source` None, with the `reason`, is a machine without GPUs: nothing is read. The energy is the
    difference of the driver's counter, where it has one, else sampled power over time.
    """

    source: PowerSource | None
    reason: str | None = None
    period_s: float = SAMPLE_PERIOD_S
    now: Callable[[], float] = time.monotonic
    _samples: list[tuple[float, tuple[GpuReading, ...]]] = field(default_factory=list)
    _polling: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        self._sample()
        if self.source is not None:
            self._polling.enter_context(
                repeated(self._sample, period_s=self.period_s, name="power-meter")
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._polling.close()
        self._sample()

    @property
    def figures(self) -> PowerFigures:
        """What was read between entering and leaving."""
        if len(self._samples) < 2:  # noqa: PLR2004 - a difference needs two
            return PowerFigures(reason=self.reason or "the driver did not answer")
        return power_figures(self._samples)

    def _sample(self) -> None:
        if self.source is None:
            return
        with suppress(Unavailable):
            self._samples.append((self.now(), self.source.read()))


def power_figures(samples: Sequence[tuple[float, tuple[GpuReading, ...]]]) -> PowerFigures:
    """Figures of samples (time in seconds, one reading per GPU), at least two."""
    energy_j, basis = _energy_j(samples)
    span_s = samples[-1][0] - samples[0][0]
    readings = [reading for _, gpus in samples for reading in gpus]
    clocks = [one.sm_clock_mhz for one in readings if one.sm_clock_mhz is not None]
    heat = [one.temperature_c for one in readings if one.temperature_c is not None]
    return PowerFigures(
        energy_j=energy_j,
        basis=basis,
        mean_power_w=energy_j / span_s if energy_j is not None and span_s > 0 else None,
        sm_clock_mhz=_mean(clocks),
        lowest_sm_clock_mhz=min(clocks, default=None),
        memory_clock_mhz=_mean(
            [one.memory_clock_mhz for one in readings if one.memory_clock_mhz is not None]
        ),
        highest_temperature_c=max(heat, default=None),
        throttled=_throttled(readings),
        reason=None if energy_j is not None else "the GPUs state neither energy nor power",
    )


def _energy_j(
    samples: Sequence[tuple[float, tuple[GpuReading, ...]]],
) -> tuple[float | None, str | None]:
    """Sum over the GPUs; a counter that went down was reset, and power is used instead."""
    first, last = samples[0][1], samples[-1][1]
    grown = [
        after.energy_j - before.energy_j
        for before, after in zip(first, last, strict=True)
        if before.energy_j is not None and after.energy_j is not None
    ]
    if len(grown) == len(first) and all(part >= 0 for part in grown):
        return sum(grown), "counter"
    total_j = 0.0
    for (begin_s, earlier), (end_s, later) in pairwise(samples):
        for before, after in zip(earlier, later, strict=True):
            if before.power_w is None or after.power_w is None:
                return None, None
            total_j += (before.power_w + after.power_w) / 2 * (end_s - begin_s)
    return total_j, "sampled power"


def _throttled(readings: Sequence[GpuReading]) -> dict[str, float]:
    counts: dict[str, int] = {}
    for reading in readings:
        for text in reading.throttled:
            counts[text] = counts.get(text, 0) + 1
    return {text: count / len(readings) for text, count in sorted(counts.items())}


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def meter_of(build: str, environment: Mapping[str, str]) -> PowerMeter:
    """A meter for an engine of that build; one without a GPU or a driver reads nothing."""
    if build != _GPU_BUILD:
        return PowerMeter(source=None, reason=f"an engine built for {build} uses no GPU")
    try:
        return PowerMeter(source=open_nvml(environment))
    except Unavailable as error:
        return PowerMeter(source=None, reason=str(error))


def power_remarks(figures: PowerFigures) -> tuple[str, ...]:
    """What held the clocks down for a share of the load that matters."""
    return tuple(
        f"the GPU ran below its clock in {share:.0%} of the samples: {reason}"
        for reason, share in figures.throttled.items()
        if share >= THROTTLED_SHARE
    )
