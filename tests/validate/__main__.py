"""Predicted against measured on public data: `python -m tests.validate`.

Reads the measurements beside the checkout (`../shared`), writes `build/validate.json` and
`build/validate.md`, exits 1 when a row with a target misses it. Rows without a target are a series
to watch, not a gate.
"""

import csv
import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from advisor.estimate import Estimate
from advisor.hardware import DATASHEETS, DeviceFacts
from advisor.llm import ModelShape, read_config
from advisor.roofline.throughput import TrafficShape, predict_throughput
from advisor.serving import Levers, ServingConfig
from tests.bench.figures import Figure, write_figures

ROOT = Path(__file__).parents[2]
MEASURED = ROOT.parent / "shared" / "data" / "measurements"
BATCH_LATENCY = "batch_latency_argonne_llm_inference_bench.csv"
DEVICES = {"Nvidia H100 GPU": "h100-sxm", "Nvidia A100 GPU": "a100-40-sxm"}


def _config(architecture: str, sizes: tuple[int, int, int, int, int, int]) -> Mapping[str, object]:
    hidden, layers, heads, kv_heads, intermediate, vocabulary = sizes
    return {
        "architectures": [architecture],
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": intermediate,
        "vocab_size": vocabulary,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": False,
        "torch_dtype": "float16",
    }


# Published configurations of the checkpoints that were measured.
MODELS: Mapping[str, Mapping[str, object]] = {
    "meta-llama/Meta-Llama-3-8B": _config("LlamaForCausalLM", (4096, 32, 32, 8, 14336, 128256)),
    "meta-llama/Llama-2-7b-hf": _config("LlamaForCausalLM", (4096, 32, 32, 32, 11008, 32000)),
    "Qwen/Qwen2-7B": _config("Qwen2ForCausalLM", (3584, 28, 28, 4, 18944, 152064)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One measured point and what the roofline said before: output tokens per second."""

    device: str
    batch: int
    measured: float
    predicted: Estimate

    @property
    def error(self) -> float:
        """Relative error of the central prediction."""
        return abs(self.predicted.value / self.measured - 1)

    @property
    def covered(self) -> bool:
        """Whether the interval held the measured value."""
        return self.predicted.low <= self.measured <= self.predicted.high


def batch_latency_pairs(path: Path) -> Iterator[Pair]:
    """Unflagged single-device vLLM rows of the models above, with the uncalibrated roofline."""
    shapes = {name: read_config(config) for name, config in MODELS.items()}
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["framework"] != "vLLM" or row["n_devices"] != "1" or row["flags"]:
                continue
            if row["model"] in shapes and row["hardware"] in DEVICES:
                device = DATASHEETS[DEVICES[row["hardware"]]]
                yield _pair(row, shapes[row["model"]], device)


def _pair(row: Mapping[str, str], model: ModelShape, device: DeviceFacts) -> Pair:
    length, batch = int(row["in_out_len"]), int(row["batch"])
    predicted = predict_throughput(
        model,
        device,
        ServingConfig(levers=Levers(dtype="float16")),
        shape=TrafficShape(prompt_tokens=length, output_tokens=length),
        concurrency=batch,
    )
    return Pair(
        device=device.name,
        batch=batch,
        measured=batch * length / float(row["latency_s"]),
        predicted=predicted,
    )


def figures(pairs: list[Pair]) -> Iterator[Figure]:
    """Error, coverage and width, over all and by device: no one of them says enough alone."""
    for name in ("all", *sorted({pair.device for pair in pairs})):
        chosen = [pair for pair in pairs if name in {"all", pair.device}]
        label = name.lower().replace(" ", "_")
        errors = [pair.error for pair in chosen]
        widths = [math.log(pair.predicted.high / pair.predicted.low) for pair in chosen]
        detail = f"{len(chosen)} points, uncalibrated roofline from the datasheet"
        yield Figure(
            name=f"batch_throughput_median_error_{label}",
            value=float(np.median(errors)),
            unit="fraction",
            better="lower",
            detail=detail,
        )
        yield Figure(
            name=f"batch_throughput_coverage_{label}",
            value=sum(pair.covered for pair in chosen) / len(chosen),
            unit="fraction",
            better="higher",
            detail=f"{detail}; interval high/low {math.exp(float(np.median(widths))):.2f}x",
        )


def main() -> int:
    """0 when no figure misses its target, 1 otherwise, 3 without the public data."""
    path = MEASURED / BATCH_LATENCY
    if not path.exists():
        sys.stderr.write(f"public measurements are not beside the checkout: {BATCH_LATENCY}\n")
        return 3
    pairs = list(batch_latency_pairs(path))
    return write_figures(list(figures(pairs)), ROOT / "build" / "validate.json", "Validation")


if __name__ == "__main__":
    sys.exit(main())
