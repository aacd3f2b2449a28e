"""Measure what one device gives to a decode step and to a prefill step.

Run by the engine's interpreter: ``microbench.py --threads N --seconds S [--device cpu|cuda]``.

- *Memory bandwidth*, bytes/s read: one row times weights of 512 MiB and more (far above the last
  level cache), as a decode step reads them, and a plain sum. The fastest kernel's samples are
  reported: a slower one is limited by its arithmetic, not by the memory.
- *Matrix rate*, FLOP/s (2 per multiply-add), in bf16 and fp32: 512 rows through the four linear
  layers of a decoder layer, as a prefill step of 512 tokens does.

``value`` is the median of the samples, ``low`` and ``high`` are the smallest and the largest.
`seconds` bounds the sampling; a figure takes at least 5 samples, unless one sample alone takes
longer than its share of the time, then 2. One JSON object on stdout.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
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


def matrix_rate(device: str, dtype: torch.dtype, seconds: float) -> dict[str, object]:
    """Arithmetic rate of `ROWS` rows through the linear layers of one decoder layer."""
    layers = [
        (
            torch.full((ROWS, inputs), 0.01, dtype=dtype, device=device),
            torch.full((outputs, inputs), 0.01, dtype=dtype, device=device),
        )
        for inputs, outputs in LAYERS[device]
    ]

    def prefill() -> None:
        for rows, weight in layers:
            torch.nn.functional.linear(rows, weight)

    flops = float(sum(2 * ROWS * inputs * outputs for inputs, outputs in LAYERS[device]))
    durations = samples_s(prefill, seconds=seconds, device=device)
    shapes = [[ROWS, inputs, outputs] for inputs, outputs in LAYERS[device]]
    return {**rate(flops, durations, "flops_per_s"), "shape": shapes}


def main() -> int:
    """Measure and print the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    arguments = parser.parse_args()
    device: str = arguments.device
    torch.set_num_threads(arguments.threads)
    # A third of the time each: reading memory, bf16 arithmetic, fp32 arithmetic.
    share_s = arguments.seconds / 3
    with torch.inference_mode():
        bandwidth = memory_bandwidth(device, share_s)
        rates = {name: matrix_rate(device, dtype, share_s) for name, dtype in DTYPES.items()}
    result = {
        "device": device,
        "device_name": device_name(device),
        "threads": torch.get_num_threads(),
        "cpu_features": cpu_features(),
        "total_memory_bytes": total_memory_bytes(device),
        "memory_bandwidth": bandwidth,
        "matrix_rate": rates,
    }
    sys.stdout.write(json.dumps(result) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
