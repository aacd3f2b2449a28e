"""Devices: what a micro-benchmark measured, or what a datasheet says (dense rates)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from advisor.errors import InvalidInput, UnknownName
from advisor.estimate import Estimate, Source
from advisor.units import GB

TERA = 10**12


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """One device as the step model needs it.

    `matrix_rate_flops_per_s` is keyed by dtype ("bfloat16", "float32", ...): dense FLOP/s.
    `bandwidth_bytes_per_s` is read bandwidth. Both are estimates with their source.
    """

    name: str
    kind: str
    threads: int | None
    memory_bytes: int
    bandwidth_bytes_per_s: Estimate
    matrix_rate_flops_per_s: Mapping[str, Estimate]
    cpu_features: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        if self.kind not in {"cpu", "cuda"}:
            raise UnknownName("device kind", self.kind, ["cpu", "cuda"])
        if self.memory_bytes <= 0:
            raise InvalidInput("device.memory_bytes", "must be positive")
        if self.bandwidth_bytes_per_s.low <= 0:
            raise InvalidInput("device.bandwidth_bytes_per_s", "must be positive")
        for dtype, rate in self.matrix_rate_flops_per_s.items():
            if rate.low <= 0:
                raise InvalidInput(f"device.matrix_rate_flops_per_s.{dtype}", "must be positive")

    def rate(self, dtype: str) -> Estimate:
        """Dense matrix rate for `dtype`; a dtype nobody measured raises `UnknownName`."""
        try:
            return self.matrix_rate_flops_per_s[dtype]
        except KeyError:
            known = sorted(self.matrix_rate_flops_per_s)
            raise UnknownName("matrix rate for dtype", dtype, known) from None

    def ridge_flops_per_byte(self, dtype: str) -> float:
        """Arithmetic intensity where computing takes as long as reading (handbook 3.1)."""
        return self.rate(dtype).value / self.bandwidth_bytes_per_s.value


def _stated(value: float, basis: str, *, low: float | None = None) -> Estimate:
    least = value if low is None else low
    return Estimate(value=value, low=least, high=value, source=Source.LITERATURE, basis=basis)


def _datasheet(
    name: str,
    *,
    memory_gb: float,
    bandwidth_gb_per_s: float | tuple[float, float],
    tflops: tuple[float, float | None, float | None],
    maker: str = "NVIDIA",
) -> DeviceFacts:
    """One card; `tflops` are dense rates in bfloat16, float8 and int8 (None: not in hardware).

    Two bandwidths are the lowest and the highest that the maker states for variants of the card.
    """
    basis = f"{maker} {name} datasheet, dense"
    half, float8, int8 = tflops
    rates = {"bfloat16": half, "float16": half, "float8": float8, "int8": int8}
    slow, fast = (
        bandwidth_gb_per_s
        if isinstance(bandwidth_gb_per_s, tuple)
        else (bandwidth_gb_per_s, bandwidth_gb_per_s)
    )
    return DeviceFacts(
        name=name,
        kind="cuda",
        threads=None,
        memory_bytes=round(memory_gb * GB),
        bandwidth_bytes_per_s=_stated(fast * GB, basis, low=slow * GB),
        matrix_rate_flops_per_s={
            dtype: _stated(rate * TERA, basis) for dtype, rate in rates.items() if rate is not None
        },
    )


# Handbook section 10. Headlines of datasheets are rates with 2:4 sparsity, twice these.
H100_SXM = _datasheet("H100 SXM", memory_gb=80, bandwidth_gb_per_s=3350, tflops=(989, 1979, 1979))
A100_40_SXM = _datasheet(
    "A100 40GB SXM", memory_gb=40, bandwidth_gb_per_s=1555, tflops=(312, None, 624)
)
DATASHEETS: Mapping[str, DeviceFacts] = {
    "a10g": _datasheet("A10G", memory_gb=24, bandwidth_gb_per_s=600, tflops=(70, None, 140)),
    "l4": _datasheet("L4", memory_gb=24, bandwidth_gb_per_s=300, tflops=(121, 242, 242)),
    "l40s": _datasheet("L40S", memory_gb=48, bandwidth_gb_per_s=864, tflops=(362, 733, 733)),
    "a100-40-sxm": A100_40_SXM,
    "a100-80-sxm": _datasheet(
        "A100 80GB SXM", memory_gb=80, bandwidth_gb_per_s=2039, tflops=(312, None, 624)
    ),
    "a100-80-pcie": _datasheet(
        "A100 80GB PCIe", memory_gb=80, bandwidth_gb_per_s=1935, tflops=(312, None, 624)
    ),
    "h100-sxm": H100_SXM,
    "h100-pcie": _datasheet(
        "H100 PCIe", memory_gb=80, bandwidth_gb_per_s=2000, tflops=(756, 1513, 1513)
    ),
    "h200-sxm": _datasheet(
        "H200 SXM", memory_gb=141, bandwidth_gb_per_s=4800, tflops=(989, 1979, 1979)
    ),
    "b200": _datasheet(
        "B200", memory_gb=180, bandwidth_gb_per_s=(7700, 8000), tflops=(2250, 4500, 4500)
    ),
    "gb200": _datasheet(
        "GB200, one GPU", memory_gb=186, bandwidth_gb_per_s=8000, tflops=(2500, 5000, 5000)
    ),
    "b300": _datasheet("B300", memory_gb=288, bandwidth_gb_per_s=7750, tflops=(2250, 4500, 153)),
    "mi300x": _datasheet(
        "MI300X", memory_gb=192, bandwidth_gb_per_s=5300, tflops=(1307, 2615, 2615), maker="AMD"
    ),
    "mi325x": _datasheet(
        "MI325X", memory_gb=256, bandwidth_gb_per_s=6000, tflops=(1307, 2615, 2615), maker="AMD"
    ),
    "rtx-4090": _datasheet(
        "RTX 4090", memory_gb=24, bandwidth_gb_per_s=1008, tflops=(165, 330, 661)
    ),
    "rtx-5090": _datasheet(
        "RTX 5090", memory_gb=32, bandwidth_gb_per_s=1792, tflops=(210, 419, 838)
    ),
    "rtx-pro-6000": _datasheet(
        "RTX PRO 6000", memory_gb=96, bandwidth_gb_per_s=1792, tflops=(468, 936, 936)
    ),
}


def datasheet(name: str) -> DeviceFacts:
    """Exact look-up by name; raises `UnknownName` that lists the known ones."""
    try:
        return DATASHEETS[name]
    except KeyError:
        raise UnknownName("hardware", name, sorted(DATASHEETS)) from None
