"""Fitted and assumed numbers of the step model, and the machine they make of a device.

A roofline divides by peaks; engines reach a share of them. Before a study has measured anything
those shares are what others measured of engine kernels on that card (`advisor.hardware.measured`),
and elsewhere ranges wide enough to hold all of these.
"""

from collections.abc import Mapping
from dataclasses import replace

from advisor.estimate import Estimate, Source
from advisor.hardware import (
    AllReduce,
    Card,
    DeviceFacts,
    MeasuredKernels,
    card_named,
    measured_kernels,
)
from advisor.hardware.measured import ProductFit, decode_line, prefill_curve
from advisor.llm import WeightFormat, weight_format
from advisor.roofline.published import narrow_cache_slowdown
from advisor.roofline.step.machine import Machine
from advisor.roofline.step.ranges import (
    CENTRE,
    FAST,
    OPPOSITE,
    SLOW,
    UNPACKED_4,
    UNPACKED_8,
    Efficiency,
    Level,
    Levels,
    ProductEfficiency,
    known,
)
from advisor.roofline.step.served import ServedModel

__all__ = [
    "CENTRE",
    "FAST",
    "SLOW",
    "Efficiency",
    "Level",
    "Levels",
    "ProductEfficiency",
    "assumed_start_s",
    "exact_efficiency",
    "known",
    "machine",
    "prior_efficiency",
    "product_units",
]
_NARROW_BITS = 8
_RELEASE = (0, 32)  # of vLLM: the one that is advised on
_MOST_ATTENTION = 1.05
# Formats that multiply in narrow units where the hardware has them, and what engines run instead
# where it has not: unpacked weights (handbook 7.2 and 7.4, Marlin).
_FALLBACK: Mapping[str, str] = {"float8": "W8A16", "float4": "W4A16"}


def _prior(value: float, low: float, high: float, basis: str) -> Estimate:
    return Estimate(value=value, low=low, high=high, source=Source.LITERATURE, basis=basis)


_MEMORY = _prior(0.78, 0.55, 0.95, "range of kernels measured on six devices, handbook 3.2")
_COMPUTE = _prior(0.65, 0.45, 0.90, "range of kernels measured on six devices, handbook 3.2")
# A micro-benchmark's rate is itself an achieved one: an engine loses little of it in large
# products and more in narrow ones.
_MEMORY_MEASURED = _prior(0.85, 0.55, 1.0, "against a measured bandwidth; assumed")
_COMPUTE_MEASURED = _prior(0.85, 0.50, 1.0, "against a measured matrix rate; assumed")
_ATTENTION = _prior(0.45, 0.15, 0.67, "causal prefill attention at 1k to 16k, handbook 3.2")
# Small CPU models spend a third of a step outside of matrix products; a GPU's host share is one
# to a few ms without graphs and a tenth of that with them.
_OVERHEAD = {
    "cpu": _prior(5e-3, 1e-3, 15e-3, "assumed for a CPU engine"),
    "cuda": _prior(1.2e-3, 0.1e-3, 4e-3, "per-step overhead of a fitted engine, handbook 3.3"),
}
_REQUEST = _prior(4e-6, 0.0, 20e-6, "host work per request of a fitted engine, handbook 3.4")
_LAUNCH = _prior(5e-6, 0.0, 13.3e-6, "fixed cost of kernels on six devices, handbook 3.2")
_CACHE = _prior(0.78, 0.5, 0.95, "decode attention on five devices, handbook 3.2")
_ATTENTION_LATENCY = _prior(13e-6, 3e-6, 16e-6, "floor of attention kernels, handbook 3.1")
# Products were fitted with their activations in the bytes; norms and the like are partly fused.
_TRAFFIC = _prior(0.8, 0.3, 1.0, "activations through memory, elementwise work partly fused")
_COMMUNICATION = _prior(1.0, 0.9, 1.3, "spread among servers assumed")
# Narrow and unpacking kernels where nobody measured them on the card.
_NARROW = "range of quantized kernels on five devices, handbook 3.2"
_UNPACKING = (
    "weight-only kernels against 16-bit ones, Marlin and TensorRT-LLM on A100, handbook 7.2"
)
_PRODUCTS: Mapping[str, ProductEfficiency] = {
    "float8": ProductEfficiency(
        memory=_prior(0.77, 0.55, 0.95, _NARROW),
        compute=_prior(0.50, 0.35, 0.80, _NARROW),
        launch_s=_prior(7e-6, 0.0, 12e-6, _NARROW),
        tile=128,
    ),
    "int8": ProductEfficiency(
        memory=_prior(0.77, 0.50, 0.95, _NARROW),
        compute=_prior(0.60, 0.30, 0.90, _NARROW),
        launch_s=_prior(7e-6, 0.0, 13.3e-6, _NARROW),
        tile=128,
    ),
    "float4": ProductEfficiency(
        memory=_prior(0.85, 0.55, 1.0, _NARROW),
        compute=_prior(0.45, 0.30, 0.70, _NARROW),
        launch_s=_prior(7e-6, 0.0, 12e-6, _NARROW),
        tile=128,
    ),
}
# How an unpacking kernel compares with the 16-bit one of the same card: memory, then compute.
_UNPACKED: Mapping[str, tuple[Estimate, Estimate]] = {
    UNPACKED_4: (_prior(0.75, 0.55, 1.0, _UNPACKING), _prior(0.87, 0.64, 1.0, _UNPACKING)),
    UNPACKED_8: (_prior(0.88, 0.70, 1.0, _UNPACKING), _prior(0.93, 0.70, 1.0, _UNPACKING)),
}
# A fit's mean relative error times this is about its 90 % interval; a sibling's kernels add a
# tenth. Shares of attention that are known at two points have so much play.
_ERRORS, _SIBLING, _PLAY = 2.0, 0.1, 0.08

# From launch to healthy, with and without compilation; for planning until a start was timed.
_START_S = {
    ("cpu", True): 35.0,
    ("cpu", False): 100.0,
    ("cuda", True): 45.0,
    ("cuda", False): 120.0,
}


def assumed_start_s(device: DeviceFacts, *, eager: bool) -> float:
    """Seconds to expect from launching an engine until it is healthy."""
    return _START_S[device.kind, eager]


def prior_efficiency(device: DeviceFacts) -> Efficiency:
    """The ranges to assume before anything was measured through an engine on this device.

    Narrow where engine kernels were measured on the card, or on one with the same units; wide
    everywhere else. A device whose peaks a micro-benchmark found has its own, whatever its name.
    """
    rates = device.matrix_rate_flops_per_s.values()
    rates_measured = all(rate.source is Source.MEASURED for rate in rates)
    bandwidth_measured = device.bandwidth_bytes_per_s.source is Source.MEASURED
    memory = _MEMORY_MEASURED if bandwidth_measured else _MEMORY
    compute = _COMPUTE_MEASURED if rates_measured else _COMPUTE
    if device.kind == "cpu":
        return Efficiency(
            memory=memory, compute=compute, attention=_ATTENTION, overhead_s=_OVERHEAD["cpu"]
        )
    if not (rates_measured or bandwidth_measured):
        found = card_named(device.name)
        kernels = None if found is None else measured_kernels(found.key)
        if found is not None and kernels is not None:
            return _from_kernels(found, *kernels)
    return _on_cuda(ProductEfficiency(memory=memory, compute=compute, launch_s=_LAUNCH))


def _on_cuda(plain: ProductEfficiency) -> Efficiency:
    """An engine on a GPU with such kernels in the model's dtype."""
    return Efficiency(
        memory=plain.memory,
        compute=plain.compute,
        launch_s=plain.launch_s,
        attention=_ATTENTION,
        products={**_PRODUCTS, **_unpacking(plain)},
        cache=_CACHE,
        attention_latency_s=_ATTENTION_LATENCY,
        traffic=_TRAFFIC,
        communication=_COMMUNICATION,
        overhead_s=_OVERHEAD["cuda"],
        request_s=_REQUEST,
    )


def _unpacking(plain: ProductEfficiency) -> dict[str, ProductEfficiency]:
    return {
        name: ProductEfficiency(
            memory=_times(plain.memory, memory),
            compute=_times(plain.compute, compute),
            launch_s=plain.launch_s,
        )
        for name, (memory, compute) in _UNPACKED.items()
    }


def _times(first: Estimate, second: Estimate) -> Estimate:
    return _prior(
        first.value * second.value,
        first.low * second.low,
        first.high * second.high,
        f"{first.basis}; {second.basis}",
    )


def _from_kernels(card: Card, kernels: MeasuredKernels, own: bool) -> Efficiency:  # noqa: FBT001
    extra = 0.0 if own else _SIBLING
    peak = card.facts.bandwidth_bytes_per_s.value
    reference = kernels.bandwidth_bytes_per_s(card.key) if own else peak
    fits = {
        units: _fitted(fit, extra, reference / peak, tile=1 if units == "bfloat16" else 128)
        for units, fit in kernels.products.items()
    }
    plain = fits["bfloat16"]
    base = _on_cuda(plain)
    wide, latency_s = _decode(kernels, 2, peak)
    narrow, narrow_latency_s = _decode(kernels, 1, peak)
    if 1 not in kernels.decode:
        narrow = _slower(narrow, narrow_cache_slowdown(_RELEASE, card, grouped=True))
    attention, curve = base.attention, base.attention_curve
    if kernels.prefill:
        rate = card.facts.rate("bfloat16").value
        curve = prefill_curve(kernels.prefill, rate, latency_s.value)
        attention = _around(1.0, _PLAY + extra, kernels.source, most=_MOST_ATTENTION)
    return replace(
        base,
        products={**base.products, **_unpacking(plain), **fits},
        attention=attention,
        attention_curve=curve,
        cache=wide,
        attention_latency_s=latency_s,
        narrow_cache=narrow,
        narrow_latency_s=narrow_latency_s,
    )


def _slower(share: Estimate, factor: Estimate) -> Estimate:
    """A share of the bandwidth in kernels that are slower by a factor."""
    if factor.high == 1:
        return share
    return _prior(
        share.value / factor.value,
        share.low / factor.high,
        share.high / factor.low,
        f"{share.basis}; {factor.basis}",
    )


def _fitted(fit: ProductFit, extra: float, of_peak: float, *, tile: int) -> ProductEfficiency:
    spread = _ERRORS * fit.error + extra
    basis = f"engine kernels measured, mean error {fit.error:.1%}, handbook 3.2; about 90 %"
    return ProductEfficiency(
        memory=_around(min(1.0, fit.memory * of_peak), spread, basis),
        compute=_around(fit.compute, spread, basis),
        # Graphs hide a part of what a launch costs.
        launch_s=_prior(fit.launch_s, 0.0, 1.5 * fit.launch_s, basis),
        tile=tile,
    )


def _around(value: float, spread: float, basis: str, *, most: float = 1.0) -> Estimate:
    return _prior(value, value * (1 - spread), max(value, min(most, value * (1 + spread))), basis)


def _decode(kernels: MeasuredKernels, element_bytes: int, peak: float) -> tuple[Estimate, Estimate]:
    points = kernels.decode.get(element_bytes)
    if points is None:
        if kernels.decode_share is None:
            return _CACHE, _ATTENTION_LATENCY
        low, high = kernels.decode_share
        share = _prior((low + high) / 2, low * (1 - _PLAY), high, kernels.source)
        return share, _ATTENTION_LATENCY
    line = decode_line(points, element_bytes, peak)
    return (
        _around(line.share, _PLAY, kernels.source),
        _prior(line.latency_s, 0.3 * line.latency_s, 1.3 * line.latency_s, kernels.source),
    )


def exact_efficiency(
    *, memory: float = 1.0, compute: float = 1.0, attention: float = 1.0, overhead_s: float = 0.0
) -> Efficiency:
    """Known shares without a range; the defaults give the speed of light of a device."""
    return Efficiency(
        memory=known(memory),
        compute=known(compute),
        attention=known(attention),
        overhead_s=known(overhead_s),
    )


def machine(
    device: DeviceFacts,
    served: ServedModel,
    efficiency: Efficiency,
    levels: Levels = CENTRE,
    *,
    all_reduce: AllReduce | None = None,
) -> Machine:
    """The machine at one point of all ranges; a dtype nobody measured raises `UnknownName`.

    `all_reduce` is the table of the ranks that serve the model together.
    """
    units, weights = product_units(device, served)
    packed = efficiency.product(weights) if served.packed else None
    cache, latency_s = efficiency.cache_read(narrow=served.cache_format.key_bits <= _NARROW_BITS)
    slower = OPPOSITE[levels.overhead]
    return Machine(
        bandwidth_bytes_per_s=levels.memory.of(device.bandwidth_bytes_per_s),
        rate_flops_per_s=levels.compute.of(device.rate(served.computed_dtype)),
        packed_rate_flops_per_s=levels.compute.of(device.rate(units)),
        memory=levels.memory.of(efficiency.memory),
        compute=levels.compute.of(efficiency.compute),
        launch_s=slower.of(efficiency.launch_s),
        packed_memory=None if packed is None else levels.memory.of(packed.memory),
        packed_compute=None if packed is None else levels.compute.of(packed.compute),
        packed_launch_s=None if packed is None else slower.of(packed.launch_s),
        packed_tile=1 if packed is None else packed.tile,
        cache=levels.memory.of(cache),
        attention_latency_s=slower.of(latency_s),
        attention=levels.compute.of(efficiency.attention),
        attention_curve=efficiency.attention_curve,
        traffic=OPPOSITE[levels.memory].of(efficiency.traffic),
        routing=OPPOSITE[levels.memory].of(served.routing),
        communication=slower.of(efficiency.communication),
        all_reduce=all_reduce,
        overhead_s=slower.of(efficiency.overhead_s),
        request_s=slower.of(efficiency.request_s),
        async_scheduling=efficiency.async_scheduling,
    )


def product_units(device: DeviceFacts, served: ServedModel) -> tuple[str, WeightFormat]:
    """Dtype of the units that multiply the blocks on this device, and the format that runs there.

    Weights unpacked before the product multiply in the served dtype. A GPU without 8-bit or 4-bit
    float units runs such weights unpacked.
    """
    weights = served.format
    missing = weights.units not in device.matrix_rate_flops_per_s
    if device.kind == "cuda" and missing and weights.units in _FALLBACK:
        weights = weight_format(_FALLBACK[weights.units])
    unpacked = weights.units == "bfloat16" or not served.packed
    return served.computed_dtype if unpacked else weights.units, weights
