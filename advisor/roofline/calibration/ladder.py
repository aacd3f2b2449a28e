"""The step model with two numbers measured here: what a step costs, and each request in it.

Handbook 3.3 and 4.1: ``T(n) = T0 + T1 n`` from a load ladder, prompts included.
"""

from dataclasses import dataclass

from advisor.errors import InvalidInput
from advisor.estimate import Estimate, Source
from advisor.hardware import DeviceFacts
from advisor.llm import ModelShape, dtype_bytes
from advisor.roofline.step.served import served_dtype
from advisor.roofline.throughput import TrafficShape
from advisor.serving import ServingConfig

# Handbook 3.3: a fit that implies other shares of the peaks is wrong, or the peaks are.
_LEAST_SHARE, _MOST_SHARE = 0.1, 1.05


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCalibration:
    """T0 and T1 in seconds; `cap` is how many requests run at once at most, None: all of them."""

    step_s: Estimate
    step_s_per_request: Estimate
    cap: Estimate | None = None

    def tpot_s(self, concurrency: int) -> Estimate:
        """Seconds per output token with so many requests in flight, prompts included."""
        return self._predicted(*self._step_s(concurrency))

    def tokens_per_s(self, concurrency: int) -> Estimate:
        """Output tokens per second with so many requests in flight."""
        least, centre, most = self._step_s(concurrency)
        few, usual, many = self._running(concurrency)
        # More running requests take longer steps, and still yield more: T0 is shared.
        return self._predicted(few / most, usual / centre, many / least)

    def _running(self, concurrency: int) -> tuple[float, float, float]:
        if concurrency < 1:
            raise InvalidInput("concurrency", f"{concurrency} is below 1")
        if self.cap is None:
            return float(concurrency), float(concurrency), float(concurrency)
        ends = (self.cap.low, self.cap.value, self.cap.high)
        few, usual, many = (min(float(concurrency), end) for end in ends)
        return few, usual, many

    def _step_s(self, concurrency: int) -> tuple[float, float, float]:
        few, usual, many = self._running(concurrency)
        fixed, each = self.step_s, self.step_s_per_request
        return (
            fixed.low + each.low * few,
            fixed.value + each.value * usual,
            fixed.high + each.high * many,
        )

    def _predicted(self, low: float, value: float, high: float) -> Estimate:
        return Estimate(
            value=value,
            low=low,
            high=high,
            source=Source.CALIBRATED_ROOFLINE,
            basis="affine step time from the load ladder, both ends of its terms",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ImpliedShares:
    """Shares of the device's peaks that a calibration implies (handbook 3.3).

    `memory` is reading all weights in T0, `compute` the arithmetic of one more request in T1, None
    where T1 is 0. `rejected` says why the calibration cannot be right, None where it can.
    """

    memory: float
    compute: float | None
    rejected: str | None


def implied_shares(
    model: ModelShape,
    device: DeviceFacts,
    config: ServingConfig,
    *,
    calibration: StepCalibration,
    shape: TrafficShape,
) -> ImpliedShares:
    """What a calibration says about the peaks; a dtype nobody measured raises `UnknownName`."""
    dtype = served_dtype(model, config)
    bandwidth = device.bandwidth_bytes_per_s.value
    fixed_s, each_s = calibration.step_s.value, calibration.step_s_per_request.value
    memory = model.step_weight_bytes(dtype) / (fixed_s * bandwidth)
    compute = None
    if each_s > 0:
        compute = _request_flops(model, shape) / (each_s * device.rate(dtype).value)
    named = (("memory bandwidth", memory), ("matrix rate", compute))
    reasons = [
        f"it implies {share:.0%} of the {name}"
        for name, share in named
        if share is not None and not _LEAST_SHARE <= share <= _MOST_SHARE
    ]
    return ImpliedShares(
        memory=memory, compute=compute, rejected=" and ".join(reasons) if reasons else None
    )


def cache_read_share(
    model: ModelShape, device: DeviceFacts, config: ServingConfig, *, shape: TrafficShape
) -> float:
    """Share of what one more request in a step costs at least that is reading its cache.

    Handbook 4.1: ``T1 = c_t + c_kv s``, both at the device's own rates.
    """
    dtype = served_dtype(model, config)
    cache_bytes = _context(shape) * model.kv_bytes_per_token(dtype_bytes(dtype))
    read_s = cache_bytes / device.bandwidth_bytes_per_s.value
    computed_s = _request_flops(model, shape) / device.rate(dtype).value
    return read_s / (read_s + computed_s)


def _context(shape: TrafficShape) -> float:
    return shape.prompt_tokens + shape.output_tokens / 2


def _request_flops(model: ModelShape, shape: TrafficShape) -> float:
    """FLOP of one output token with its attention and its part of the prompt.

    The prompt's cached tokens are not computed again.
    """
    cached = shape.cached_share.value if shape.cached_share is not None else 0.0
    new = shape.prompt_tokens * (1 - cached)
    prompt = 2 * model.linear_parameters * new + model.prefill_attention_flops(
        new, shape.prompt_tokens - new
    )
    decode = model.flops_per_token() + model.attention_flops(_context(shape))
    return decode + prompt / shape.output_tokens
