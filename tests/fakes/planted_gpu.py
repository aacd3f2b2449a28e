"""A driver's library with planted GPUs: the part of pynvml that is asked, under its names."""

from collections.abc import Callable
from dataclasses import dataclass, field


class NVMLError(Exception):
    """What the driver raises where it has no answer."""


@dataclass
class PlantedGpu:
    """One GPU whose counter grows by `power_w` for every second that `seconds` says."""

    uuid: str = "GPU-aaaa"
    power_w: float = 300.0
    has_counter: bool = True
    has_power: bool = True
    temperature_c: int = 60
    sm_clock_mhz: int = 1980
    memory_clock_mhz: int = 2619
    reasons: int = 0


@dataclass
class PlantedNvml:
    """Stands in for the module; `seconds` is the planted time, `driver` whether there is one."""

    gpus: list[PlantedGpu] = field(default_factory=lambda: [PlantedGpu()])
    seconds: Callable[[], float] = lambda: 0.0
    driver: bool = True
    NVML_CLOCK_SM: int = 1
    NVML_CLOCK_MEM: int = 2
    NVML_TEMPERATURE_GPU: int = 0
    NVMLError: type[NVMLError] = NVMLError

    def nvmlInit(self) -> None:  # noqa: N802
        if not self.driver:
            raise NVMLError("NVML Shared Library Not Found")

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> PlantedGpu:  # noqa: N802
        return self.gpus[index]

    def nvmlSystemGetDriverVersion(self) -> bytes:  # noqa: N802
        return b"580.65"

    def nvmlDeviceGetUUID(self, gpu: PlantedGpu) -> str:  # noqa: N802
        return gpu.uuid

    def nvmlDeviceGetTotalEnergyConsumption(self, gpu: PlantedGpu) -> int:  # noqa: N802
        """Millijoules since the driver was loaded."""
        if not gpu.has_counter:
            raise NVMLError("Not Supported")
        return round(1000 * gpu.power_w * (100 + self.seconds()))

    def nvmlDeviceGetPowerUsage(self, gpu: PlantedGpu) -> int:  # noqa: N802
        """Milliwatts."""
        if not gpu.has_power:
            raise NVMLError("Not Supported")
        return round(1000 * gpu.power_w)

    def nvmlDeviceGetClockInfo(self, gpu: PlantedGpu, kind: int) -> int:  # noqa: N802
        return gpu.sm_clock_mhz if kind == self.NVML_CLOCK_SM else gpu.memory_clock_mhz

    def nvmlDeviceGetTemperature(self, gpu: PlantedGpu, sensor: int) -> int:  # noqa: N802
        assert sensor == self.NVML_TEMPERATURE_GPU
        return gpu.temperature_c

    def nvmlDeviceGetCurrentClocksEventReasons(self, gpu: PlantedGpu) -> int:  # noqa: N802
        return gpu.reasons
