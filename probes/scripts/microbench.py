"""Measure what one device gives to a decode step and to a prefill step.

Run by the engine's interpreter: ``microbench.py --threads N --seconds S [--device cpu|cuda]``.

- *Memory bandwidth*, bytes/s read: one row times weights of 512 MiB and more (far above the last
  level cache), as a decode step reads them, and a plain sum. The fastest kernel's samples are
  reported: a slower one is limited by its arithmetic, not by the memory.
- *Matrix rate*, FLOP/s (2 per multiply-add), in bf16, fp32 and int8: 512 rows through the four
  linear layers of a decoder layer, as a prefill step of 512 tokens does. On a processor int8 runs
  the kernel that vLLM itself uses for W8A8 layers (int8 rows and weights, fp32 results), if its
  results are right there. A dtype that cannot run is left out of ``matrix_rate`` and named, with
  the reason, in ``skipped``.

``value`` is the median of the samples, ``low`` and ``high`` are the smallest and the largest.
`seconds` bounds the sampling; a figure takes at least 5 samples, unless one sample alone takes
longer than its share of the time, then 2. One JSON object on stdout.
"""

import argparse
import importlib.util
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

CPU_FEATURES = (
    *("avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512_bf16", "avx512_vnni"),
    *("amx_tile", "amx_bf16", "amx_int8", "asimd", "bf16", "i8mm", "sve"),
)
WORKING_SET_BYTES = {"cpu": 512 << 20, "cuda": 8 << 30}
SIDE = 4096
ROWS = 512
# Inputs and outputs of the query-key-value, output, gate-up and down projections.
LAYERS = {
    "cpu": ((576, 960), (576, 576), (576, 3072), (1536, 576)),
    "cuda": ((4096, 6144), (4096, 4096), (4096, 28672), (14336, 4096)),
}
MIN_SAMPLES = 5
MIN_SLOW_SAMPLES = 2
MAX_SAMPLES = 200
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
INT8 = "int8"
INT8_MAX = 127
SCALE = 0.01
PRIMITIVE_CACHE = 32  # as vLLM's W8A8 layers ask of oneDNN


class NoKernelError(Exception):
    """This installation cannot do a kind of arithmetic; the message says why."""


def cpu_features() -> list[str]:
    """Name the instruction sets of `CPU_FEATURES` that this processor has."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    flags = next((line for line in lines if line.lower().startswith(("flags", "features"))), "")
    present = set(flags.partition(":")[2].split())
    return [feature for feature in CPU_FEATURES if feature in present]


def device_name(device: str) -> str:
    """Name the processor or the accelerator as the system calls it."""
    if device == "cuda":
        return str(torch.cuda.get_device_name())
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, os.uname().machine)


def total_memory_bytes(device: str) -> int:
    """Return the memory of the accelerator, or of the machine."""
    if device == "cuda":
        return int(torch.cuda.get_device_properties(0).total_memory)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def timed_s(work: Callable[[], object], device: str) -> float:
    """Time one call, in seconds, until the device has finished it."""
    if device == "cuda":
        torch.cuda.synchronize()
    started = time.perf_counter()
    work()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started


def samples_s(work: Callable[[], object], *, seconds: float, device: str) -> list[float]:
    """Repeat `work` for about `seconds` after one unrecorded call; durations in seconds."""
    warm_s = timed_s(work, device)
    least = MIN_SAMPLES if warm_s * MIN_SAMPLES <= 2 * seconds else MIN_SLOW_SAMPLES
    durations: list[float] = []
    while len(durations) < least or (sum(durations) < seconds and len(durations) < MAX_SAMPLES):
        durations.append(timed_s(work, device))
    return durations


def rate(amount: float, durations: list[float], unit: str) -> dict[str, object]:
    """Describe ``amount / duration`` by its median and range."""
    rates = [amount / duration for duration in durations]
    return {
        f"value_{unit}": statistics.median(rates),
        "low": min(rates),
        "high": max(rates),
        "samples": len(rates),
    }


def memory_bandwidth(device: str, seconds: float) -> dict[str, object]:
    """Read bandwidth of the fastest of three kernels, each on a working set of its own dtype."""
    kernels: dict[str, dict[str, object]] = {}
    for name, dtype in DTYPES.items():
        size = torch.empty(0, dtype=dtype).element_size()
        count = WORKING_SET_BYTES[device] // (SIDE * SIDE * size)
        # Written page by page: untouched memory would all be read from one page of zeros.
        weights = [torch.full((SIDE, SIDE), 0.01, dtype=dtype, device=device) for _ in range(count)]
        row = torch.full((1, SIDE), 0.01, dtype=dtype, device=device)
        amount = float(count * SIDE * SIDE * size)

        def decode(weights: list[torch.Tensor] = weights, row: torch.Tensor = row) -> None:
            for weight in weights:
                torch.nn.functional.linear(row, weight)

        durations = samples_s(decode, seconds=seconds / 3, device=device)
        kernels[f"gemv_{name}"] = rate(amount, durations, "bytes_per_s")
        if name == "fp32":

            def total(weights: list[torch.Tensor] = weights) -> None:
                for weight in weights:
                    weight.sum()

            durations = samples_s(total, seconds=seconds / 3, device=device)
            kernels["sum_fp32"] = rate(amount, durations, "bytes_per_s")
        del weights
    best = max(kernels, key=lambda kernel: float(str(kernels[kernel]["value_bytes_per_s"])))
    return {**kernels[best], "kernel": best, "kernels": kernels}


def float_products(device: str, dtype: torch.dtype) -> list[Callable[[], object]]:
    """Products of `ROWS` rows with each layer's weights."""
    products: list[Callable[[], object]] = []
    for inputs, outputs in LAYERS[device]:
        rows = torch.full((ROWS, inputs), 0.01, dtype=dtype, device=device)
        weight = torch.full((outputs, inputs), 0.01, dtype=dtype, device=device)
        products.append(partial(torch.nn.functional.linear, rows, weight))
    return products


def load_engine_kernels() -> None:
    """Load the library of vLLM's own processor kernels, chosen as vLLM chooses it.

    Importing vLLM for it would take longer than the whole measurement.
    """
    found = importlib.util.find_spec("vllm")
    folders = [] if found is None else list(found.submodule_search_locations or [])
    name = "_C"
    if os.uname().machine == "x86_64" and not torch.cpu._is_avx512_supported():  # noqa: SLF001
        name = "_C_AVX2"
    elif os.uname().machine == "x86_64" and not torch.cpu._is_avx512_bf16_supported():  # noqa: SLF001
        name = "_C_AVX512"
    files = [file for folder in folders for file in Path(folder).glob(f"{name}.abi3.so")]
    if not files:
        message = f"this vLLM has no {name} library"
        raise NoKernelError(message)
    torch.ops.load_library(str(files[0]))


def onednn_product(inputs: int, outputs: int) -> Callable[[], object]:
    """One product by the oneDNN kernel of vLLM's W8A8 layers: int8 in, fp32 out."""
    kernels = torch.ops._C  # noqa: SLF001
    weight = torch.full((outputs, inputs), INT8_MAX, dtype=torch.int8)
    # The handler packs the weight for itself, but reads the scales where they are.
    scales = torch.full((outputs, 1), SCALE)
    handler = kernels.create_onednn_scaled_mm_handler(
        weight.t(), scales, torch.float32, True, False, PRIMITIVE_CACHE
    )
    handle = torch.tensor(handler, dtype=torch.int64)
    rows = torch.full((ROWS, inputs), INT8_MAX, dtype=torch.int8)
    row_scales = torch.full((ROWS, 1), SCALE)
    out = torch.empty((ROWS, outputs))

    def product(scales: torch.Tensor = scales) -> torch.Tensor:
        kernels.onednn_scaled_mm(out, rows, row_scales, None, None, None, handle)
        return scales

    product()
    expected = inputs * (INT8_MAX * SCALE) ** 2
    if not torch.allclose(out, torch.full_like(out, expected), rtol=1e-3):
        # Without VNNI, oneDNN adds two products in 16 bits.
        message = "the engine's int8 products overflow on this processor"
        raise NoKernelError(message)
    return product


def int8_products(device: str) -> list[Callable[[], object]]:
    """Products of int8 rows with int8 weights; `NoKernelError` says why there are none."""
    try:
        if device == "cpu":
            load_engine_kernels()
            return [onednn_product(inputs, outputs) for inputs, outputs in LAYERS[device]]
        products: list[Callable[[], object]] = []
        for inputs, outputs in LAYERS[device]:
            rows = torch.full((ROWS, inputs), INT8_MAX, dtype=torch.int8, device=device)
            weight = torch.full((outputs, inputs), INT8_MAX, dtype=torch.int8, device=device)
            products.append(partial(torch._int_mm, rows, weight.t()))  # noqa: SLF001
        products[0]()
    except (AttributeError, OSError, RuntimeError) as error:
        # Another engine version without this kernel, or hardware that it does not know.
        said = (str(error).splitlines() or [type(error).__name__])[0][:200]
        message = f"int8 products do not run here: {said}"
        raise NoKernelError(message) from None
    return products


def matrix_rate(
    device: str, products: list[Callable[[], object]], seconds: float
) -> dict[str, object]:
    """Arithmetic rate of `ROWS` rows through the linear layers of one decoder layer."""

    def prefill() -> None:
        for product in products:
            product()

    flops = float(sum(2 * ROWS * inputs * outputs for inputs, outputs in LAYERS[device]))
    durations = samples_s(prefill, seconds=seconds, device=device)
    shapes = [[ROWS, inputs, outputs] for inputs, outputs in LAYERS[device]]
    return {**rate(flops, durations, "flops_per_s"), "shape": shapes}


def matrix_rates(
    device: str, seconds: float
) -> tuple[dict[str, dict[str, object]], dict[str, str]]:
    """Rates by dtype, in `seconds` altogether, and why a dtype has none."""
    rates: dict[str, dict[str, object]] = {}
    skipped: dict[str, str] = {}
    share_s = seconds / (len(DTYPES) + 1)
    for name, dtype in DTYPES.items():
        rates[name] = matrix_rate(device, float_products(device, dtype), share_s)
    try:
        rates[INT8] = matrix_rate(device, int8_products(device), share_s)
    except NoKernelError as error:
        skipped[INT8] = str(error)
    return rates, skipped


def main() -> int:
    """Measure and print the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    arguments = parser.parse_args()
    device: str = arguments.device
    torch.set_num_threads(arguments.threads)
    with torch.inference_mode():
        bandwidth = memory_bandwidth(device, arguments.seconds / 3)
        rates, skipped = matrix_rates(device, arguments.seconds * 2 / 3)
    result = {
        "device": device,
        "device_name": device_name(device),
        "threads": torch.get_num_threads(),
        "cpu_features": cpu_features(),
        "total_memory_bytes": total_memory_bytes(device),
        "memory_bandwidth": bandwidth,
        "matrix_rate": rates,
        "skipped": skipped,
    }
    sys.stdout.write(json.dumps(result) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
