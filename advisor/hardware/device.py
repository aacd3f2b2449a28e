"""One device as the step model needs it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from advisor.errors import InvalidInput, UnknownName
from advisor.estimate import Estimate


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
