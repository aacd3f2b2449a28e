"""What others measured of engine kernels on a card: shares of its peaks, with source and error.

Handbook 3.2: fits of ``max(bytes / (memory BW), FLOP / (compute F)) + launch`` to kernels of vLLM
0.24 (A100: 0.14) in aiconfigurator's tables, and attention kernels against their peaks.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from advisor.errors import InvalidInput
from advisor.hardware.catalogue import CATALOGUE
from advisor.units import GB

SOURCE = "vLLM kernels measured by aiconfigurator 0.12 (2026), handbook 3.2"
_MICRO = 1e-6
# The attention that was measured: heads, key-value heads, size of a head.
_HEADS, _KV_HEADS, _HEAD_DIM = 32, 8, 128
_NARROW, _WIDE = 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductFit:
    """Shares in matrix products and their fixed cost; `error` is the fit's mean relative one."""

    memory: float
    compute: float
    launch_s: float
    error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodePoint:
    """Share of the bandwidth that decode attention of `batch` requests at `context` reached."""

    batch: int
    context: int
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeLine:
    """Decode attention of one layer: ``latency + bytes / (share BW)``."""

    share: float
    latency_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredKernels:
    """Kernels of one card.

    `products` by units ("bfloat16", "float8", "float4"), `decode` by bytes of a cache element,
    `decode_share` where only the range of shares is known; `prefill` pairs prompt lengths with
    shares of the 16-bit rate in causal attention. `peak_bytes_per_s` is the bandwidth that the
    shares are of, where it is not the catalogue's.
    """

    products: Mapping[str, ProductFit]
    decode: Mapping[int, tuple[DecodePoint, ...]] = field(default_factory=dict)
    decode_share: tuple[float, float] | None = None
    prefill: tuple[tuple[int, float], ...] = ()
    peak_bytes_per_s: float | None = None
    source: str = SOURCE

    def bandwidth_bytes_per_s(self, key: str) -> float:
        """The bandwidth that the shares are of, on the card with that key."""
        return self.peak_bytes_per_s or CATALOGUE[key].facts.bandwidth_bytes_per_s.value


def decode_line(points: tuple[DecodePoint, ...], element_bytes: int, peak: float) -> DecodeLine:
    """The line through measured shares, least in relative error, at a `peak` of bytes/s."""
    if len(points) < 2:  # noqa: PLR2004
        raise InvalidInput("decode points", "a line needs two")
    token_bytes = 2 * _KV_HEADS * _HEAD_DIM * element_bytes
    moved = np.array([point.batch * point.context * token_bytes for point in points], dtype=float)
    took_s = moved / (np.array([point.share for point in points]) * peak)
    design = np.stack([1 / took_s, moved / took_s], axis=1)
    latency_s, per_byte = np.linalg.lstsq(design, np.ones(len(points)), rcond=None)[0]
    return DecodeLine(
        share=min(1.0, float(1 / (per_byte * peak))), latency_s=max(0.0, float(latency_s))
    )


def prefill_curve(
    points: tuple[tuple[int, float], ...], rate: float, latency_s: float
) -> tuple[tuple[float, float], ...]:
    """FLOP of one layer against the share of `rate` once the fixed `latency_s` is over."""
    work = [4.0 * _HEADS * _HEAD_DIM * length * (length + 1) / 2 for length, _ in points]
    took_s = [flops / (share * rate) for flops, (_, share) in zip(work, points, strict=True)]
    return tuple(
        (flops, flops / ((total_s - latency_s) * rate))
        for flops, total_s in zip(work, took_s, strict=True)
    )


def _fit(memory: float, compute: float, launch_us: float, error: float) -> ProductFit:
    return ProductFit(memory=memory, compute=compute, launch_s=launch_us * _MICRO, error=error)


def _points(*rows: tuple[int, int, float]) -> tuple[DecodePoint, ...]:
    return tuple(DecodePoint(batch=b, context=s, share=share) for b, s, share in rows)


def _at_32(short: float, long: float) -> tuple[DecodePoint, ...]:
    """Shares at a batch of 32 and contexts of 4,096 and 16,384."""
    return _points((32, 4096, short), (32, 16384, long))


def _prompts(*shares: float) -> tuple[tuple[int, float], ...]:
    return tuple(zip((1024, 4096, 16384), shares, strict=True))


_HOPPER_PROMPTS = _prompts(0.24, 0.53, 0.67)
_BLACKWELL_PROMPTS = _prompts(0.13, 0.37, 0.55)
_BLACKWELL_DECODES: Mapping[int, tuple[DecodePoint, ...]] = {
    _WIDE: _at_32(0.82, 0.92),
    _NARROW: _at_32(0.70, 0.86),
}
_A100 = MeasuredKernels(
    products={"bfloat16": _fit(0.77, 0.84, 13.3, 0.102)},
    decode_share=(0.63, 0.77),
    prefill=_prompts(0.28, 0.49, 0.56),
)
MEASURED: Mapping[str, MeasuredKernels] = {
    "a100-80-sxm": _A100,
    "h100-sxm": MeasuredKernels(
        products={
            "bfloat16": _fit(0.86, 0.81, 3.2, 0.058),
            "float8": _fit(0.78, 0.49, 6.6, 0.125),
        },
        decode={
            _WIDE: _points((1, 1024, 0.09), (8, 4096, 0.69), (32, 4096, 0.86), (32, 16384, 0.93)),
            _NARROW: _at_32(0.70, 0.84),
        },
        prefill=_HOPPER_PROMPTS,
    ),
    "h200-sxm": MeasuredKernels(
        products={
            "bfloat16": _fit(0.84, 0.81, 4.3, 0.062),
            "float8": _fit(0.81, 0.54, 8.8, 0.148),
        },
        decode={_WIDE: _at_32(0.83, 0.91), _NARROW: _at_32(0.54, 0.65)},
        prefill=_HOPPER_PROMPTS,
    ),
    "b200": MeasuredKernels(
        products={
            "bfloat16": _fit(0.82, 0.70, 4.2, 0.066),
            "float8": _fit(0.78, 0.46, 8.6, 0.14),
            "float4": _fit(1.0, 0.44, 8.7, 0.105),
        },
        decode=_BLACKWELL_DECODES,
        prefill=_BLACKWELL_PROMPTS,
        peak_bytes_per_s=7700 * GB,
    ),
    "gb200": MeasuredKernels(
        products={
            "bfloat16": _fit(0.82, 0.71, 4.5, 0.092),
            # Their fixed costs were not fitted: those of B200.
            "float8": _fit(0.76, 0.46, 8.6, 0.092),
            "float4": _fit(1.0, 0.42, 8.7, 0.092),
        },
        decode=_BLACKWELL_DECODES,
        prefill=_BLACKWELL_PROMPTS,
    ),
    "l40s": MeasuredKernels(
        products={
            "bfloat16": _fit(0.74, 0.61, 0.0, 0.086),
            "float8": _fit(0.66, 0.47, 0.0, 0.093),
        },
        decode_share=(0.74, 0.83),
        prefill=_prompts(0.31, 0.49, 0.51),
    ),
    "rtx-pro-6000": MeasuredKernels(
        products={
            "bfloat16": _fit(0.80, 0.83, 3.1, 0.065),
            "float8": _fit(0.79, 0.75, 3.1, 0.065),
            "float4": _fit(0.71, 0.63, 3.1, 0.065),
        },
    ),
}
# Cards with the same compute units and another memory: their shares are taken for alike.
SAME_UNITS: Mapping[str, str] = {
    "a100-40-sxm": "a100-80-sxm",
    "a100-80-pcie": "a100-80-sxm",
    "gh200-96": "h100-sxm",
    "h100-pcie": "h100-sxm",
    "b300": "b200",
}


def measured_kernels(key: str) -> tuple[MeasuredKernels, bool] | None:
    """Kernels measured on a card of the catalogue, and whether on that very card.

    Those of a card with the same compute units stand in where there are none; None where nobody
    measured either.
    """
    if key in MEASURED:
        return MEASURED[key], True
    sibling = SAME_UNITS.get(key)
    return None if sibling is None else (MEASURED[sibling], False)


def knee_tokens(key: str, units: str, bytes_per_weight: float) -> float:
    """Tokens of a step at which a product turns compute-bound: ``eta_c F b_w / (2 eta_m BW)``."""
    fit = MEASURED[key].products[units]
    rate = CATALOGUE[key].facts.rate(units).value
    bandwidth = MEASURED[key].bandwidth_bytes_per_s(key)
    return fit.compute * rate * bytes_per_weight / (2 * fit.memory * bandwidth)
