"""Energy and clocks of a load, on planted GPUs and, where there is a driver, on real ones."""

import importlib
import inspect
from collections.abc import Iterator

import pytest

from advisor.errors import Unavailable
from probes.power import (
    GpuReading,
    NvmlSource,
    PowerFigures,
    PowerMeter,
    meter_of,
    power_figures,
    power_remarks,
)
from tests.fakes.planted_gpu import PlantedGpu, PlantedNvml


def measured(
    library: PlantedNvml, times_s: tuple[float, ...], visible: str | None = None
) -> PowerFigures:
    """Figures of readings of planted GPUs at these times."""
    clock: Iterator[float] = iter(times_s)
    at_s = [0.0]
    library.seconds = lambda: at_s[0]
    source = NvmlSource(library, visible)
    samples = []
    for at_s[0] in clock:
        samples.append((at_s[0], source.read()))
    return power_figures(samples)


def test_energy_is_the_difference_of_the_drivers_counter() -> None:
    """300 W over 10 s on two GPUs each: 6 kJ, whenever it was sampled in between."""
    figures = measured(PlantedNvml(gpus=[PlantedGpu(), PlantedGpu()]), (0.0, 3.0, 10.0))

    assert figures.energy_j == pytest.approx(6000)
    assert figures.basis == "counter"
    assert figures.mean_power_w == pytest.approx(600)
    assert (figures.sm_clock_mhz, figures.lowest_sm_clock_mhz) == (1980, 1980)
    assert (figures.memory_clock_mhz, figures.highest_temperature_c) == (2619, 60)
    assert (figures.throttled, figures.reason) == ({}, None)


def test_a_gpu_without_a_counter_is_integrated_from_its_power() -> None:
    """Older GPUs state power only."""
    figures = measured(PlantedNvml(gpus=[PlantedGpu(has_counter=False)]), (0.0, 4.0, 10.0))

    assert figures.energy_j == pytest.approx(3000)
    assert figures.basis == "sampled power"


def test_a_counter_that_was_reset_is_not_subtracted() -> None:
    """The driver was loaded anew in between."""
    before = GpuReading(index=0, energy_j=9000.0, power_w=100.0)
    after = GpuReading(index=0, energy_j=10.0, power_w=200.0)
    figures = power_figures([(0.0, (before,)), (2.0, (after,))])

    assert figures.energy_j == pytest.approx(300)
    assert figures.basis == "sampled power"


def test_a_gpu_that_states_neither_gives_no_energy_and_says_so() -> None:
    """Nothing is made up; its clocks are still told."""
    gpu = PlantedGpu(has_counter=False, has_power=False)
    figures = measured(PlantedNvml(gpus=[gpu]), (0.0, 1.0))

    assert figures.energy_j is None
    assert figures.reason is not None
    assert figures.sm_clock_mhz == 1980


def test_throttling_is_told_by_reason_and_share() -> None:
    """A power cap and heat hold the clock down; idling and set clocks are no disturbance."""
    gpus = [PlantedGpu(reasons=0x04 | 0x40), PlantedGpu(reasons=0x01 | 0x02)]
    figures = measured(PlantedNvml(gpus=gpus), (0.0, 1.0))

    assert figures.throttled == {"hardware thermal slowdown": 0.5, "power cap": 0.5}
    assert any("power cap" in remark for remark in power_remarks(figures))


@pytest.mark.parametrize("visible, expected", [("1", (1,)), ("GPU-bb", (1,)), (None, (0, 1))])
def test_only_the_engines_gpus_count(visible: str | None, expected: tuple[int, ...]) -> None:
    """CUDA_VISIBLE_DEVICES names them by number or by the begin of the UUID."""
    library = PlantedNvml(gpus=[PlantedGpu(uuid="GPU-aaaa"), PlantedGpu(uuid="GPU-bbbb")])
    source = NvmlSource(library, visible)

    assert tuple(reading.index for reading in source.read()) == expected
    assert source.driver_version == "580.65"


@pytest.mark.parametrize("library", [PlantedNvml(driver=False), PlantedNvml(gpus=[])])
def test_without_a_driver_or_a_gpu_it_is_said_what_is_missing(library: PlantedNvml) -> None:
    """The caller measures all the same."""
    with pytest.raises(Unavailable):
        NvmlSource(library)


def test_an_engine_of_the_cpu_build_has_no_energy() -> None:
    """None with the reason, and the load goes on."""
    with meter_of("cpu", {}) as meter:
        pass

    assert meter.figures.energy_j is None
    assert "cpu" in str(meter.figures.reason)


def test_a_meter_reads_at_the_begin_and_at_the_end() -> None:
    """Also of a load shorter than its period."""
    times = iter((0.0, 2.0))
    library = PlantedNvml(seconds=lambda: 0.0)
    source = NvmlSource(library)
    with PowerMeter(source, period_s=60.0, now=lambda: next(times)) as meter:
        library.seconds = lambda: 2.0

    assert meter.figures.energy_j == pytest.approx(600)
    assert meter.figures.mean_power_w == pytest.approx(300)


def test_the_planted_library_has_the_names_of_the_real_one() -> None:
    """Every function that is planted exists in pynvml and takes as many values."""
    real = importlib.import_module("pynvml")
    planted = [name for name in dir(PlantedNvml) if name.startswith("nvml")]

    assert planted
    for name in planted:
        theirs = inspect.signature(getattr(real, name)).parameters
        ours = inspect.signature(getattr(PlantedNvml(), name)).parameters
        assert len(theirs) == len(ours), name
    assert (real.NVML_CLOCK_SM, real.NVML_CLOCK_MEM) == (1, 2)


def test_a_real_driver_answers_the_same_questions() -> None:
    """The contract of the planted one, where this machine has a GPU."""
    try:
        source = NvmlSource(importlib.import_module("pynvml"))
    except Unavailable as missing:
        pytest.skip(str(missing))
    first, second = source.read(), source.read()

    assert [one.index for one in first] == [one.index for one in second]
    assert all((one.power_w or 0) >= 0 for one in first)
