"""Argonne's vLLM rows of one GPU: admitted rows, the models as served, the runs as stretches."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from advisor.hardware import DeviceFacts, datasheet
from advisor.llm import LayerGroup, ModelShape
from advisor.llm.feed_forward import DenseFeedForward
from advisor.llm.mixers import Attention
from advisor.roofline.calibration.offline_batch import BatchLimits, offline_batch
from advisor.roofline.calibration.stretches import Stretch
from advisor.roofline.step.served import ServedModel
from advisor.units import GIB
from tests.fakes.published_models import LLAMA_31_8B

FILE = "batch_latency_argonne_llm_inference_bench.csv"
# vLLM 0.5: share of the device for the engine, requests at once, least token budget of a prompt
# step (its default is the longest request where that is longer).
_UTILIZATION, _MAX_NUM_SEQS, _LEAST_BUDGET = 0.9, 256, 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A GPU of the data: what it is, and the memory that CUDA reports of it."""

    name: str
    device: DeviceFacts
    visible_bytes: float


CARDS: Mapping[str, Card] = {
    "Nvidia A100 GPU": Card(
        name="A100-40", device=datasheet("a100-40-sxm"), visible_bytes=39.4 * GIB
    ),
    "Nvidia H100 GPU": Card(name="H100", device=datasheet("h100-sxm"), visible_bytes=79.1 * GIB),
    "Nvidia GH200 GPU": Card(name="GH200", device=datasheet("gh200-96"), visible_bytes=94.5 * GIB),
}


def _model(  # noqa: PLR0913
    name: str,
    *,
    width: int = 4096,
    layers: int = 32,
    heads: tuple[int, int] = (32, 32),
    head_dim: int = 128,
    inner: int = 11008,
    gated: bool = True,
    vocabulary: int = 32000,
    tied: bool = False,
    positions: int = 4096,
) -> ModelShape:
    group = LayerGroup(
        count=layers,
        mixer=Attention(heads=heads[0], kv_heads=heads[1], head_dim=head_dim),
        feed_forward=DenseFeedForward(intermediate=inner, gated=gated),
    )
    return ModelShape(
        architecture=name,
        hidden_size=width,
        vocab_size=vocabulary,
        layers=(group,),
        tied_embeddings=tied,
        dtype="float16",
        max_position_embeddings=positions,
    )


# Sizes as published in each model's config.json. DeciLM has 1 to 4 key-value heads by layer; vLLM
# widens all of them to the most (model_executor/models/decilm.py, 0.5).
MODELS: Mapping[str, ModelShape] = {
    "meta-llama/Llama-2-7b-hf": _model("Llama-2-7B"),
    "meta-llama/Meta-Llama-3-8B": replace(
        LLAMA_31_8B, architecture="Llama-3-8B", dtype="float16", max_position_embeddings=8192
    ),
    "mistralai/Mistral-7B-v0.1": _model("Mistral-7B", heads=(32, 8), inner=14336, positions=32768),
    "Qwen/Qwen2-7B": _model(
        "Qwen2-7B",
        width=3584,
        layers=28,
        heads=(28, 4),
        inner=18944,
        vocabulary=152064,
        positions=131072,
    ),
    "Qwen/Qwen1.5-7B": _model("Qwen1.5-7B", vocabulary=151936, positions=32768),
    "Deci/DeciLM-7B": _model("DeciLM-7B", heads=(32, 4), inner=14336, positions=8192),
    "facebook/opt-6.7b": _model(
        "OPT-6.7B", inner=16384, gated=False, vocabulary=50272, tied=True, positions=2048
    ),
    "huggyllama/llama-7b": _model("LLaMA-7B", positions=2048),
    "bigscience/bloom-7b1": _model(
        "BLOOM-7B1",
        layers=30,
        inner=16384,
        gated=False,
        vocabulary=250880,
        tied=True,
        positions=2048,
    ),
    "EleutherAI/gpt-j-6b": _model(
        "GPT-J-6B",
        layers=28,
        heads=(16, 16),
        head_dim=256,
        inner=16384,
        gated=False,
        vocabulary=50400,
        positions=2048,
    ),
    "BAAI/Aquila-7B": _model("Aquila-7B", vocabulary=100008, positions=2048),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One timed batch: `batch` prompts of `tokens`, each with as many output tokens."""

    card: Card
    model: ModelShape
    tokens: int
    batch: int
    latency_s: float

    @property
    def condition(self) -> tuple[str, int, int]:
        """What was timed on this card; a repeat has the same one."""
        return (self.model.architecture, self.tokens, self.batch)

    @property
    def served(self) -> ServedModel:
        """The model as its rows served it."""
        return ServedModel(model=self.model, dtype="float16")

    @property
    def stretches(self) -> tuple[Stretch, ...]:
        """The run that was timed."""
        return offline_batch(self.batch, self.tokens, self.tokens, limits(self.model, self.card))


def admitted_rows(measurements: Path) -> tuple[Row, ...]:
    """vLLM rows of one NVIDIA GPU: not flagged, not longer than the model's positions."""
    with (measurements / FILE).open(encoding="utf-8", newline="") as file:
        rows = [
            _row(record)
            for record in csv.DictReader(file)
            if record["framework"] == "vLLM"
            and record["n_devices"] == "1"
            and record["hardware"] in CARDS
            and record["model"] in MODELS
            and not record["flags"]
        ]
    kept = [row for row in rows if 2 * row.tokens <= (row.model.max_position_embeddings or 0)]
    return tuple(sorted(kept, key=lambda row: (row.card.name, row.condition, row.latency_s)))


def _row(record: Mapping[str, str]) -> Row:
    return Row(
        card=CARDS[record["hardware"]],
        model=MODELS[record["model"]],
        tokens=int(record["in_out_len"]),
        batch=int(record["batch"]),
        latency_s=float(record["latency_s"]),
    )


def limits(model: ModelShape, card: Card) -> BatchLimits:
    """The cache that vLLM 0.5 leaves: its share of the device less weights and activations.

    Its profiling run computes one full prompt step: two widths of the network and of the residual
    stream per token live at once, and the logits of the rows that sample, in 32 bit twice.
    """
    budget = max(_LEAST_BUDGET, model.max_position_embeddings or 0)
    network = model.layers[0].feed_forward
    wide = network.intermediate if isinstance(network, DenseFeedForward) else 0
    activations = budget * (2 * wide + 2 * model.hidden_size) * 2.0
    logits = _MAX_NUM_SEQS * model.vocab_size * 4.0 * 2
    available = _UTILIZATION * card.visible_bytes - model.weight_bytes() - activations - logits
    return BatchLimits(
        prefill_tokens=budget,
        cache_tokens=available / model.kv_bytes_per_token(),
        max_num_seqs=_MAX_NUM_SEQS,
    )
