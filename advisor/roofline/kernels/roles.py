"""How often one step calls each kernel of a profile, by its name and the model's layers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from advisor.errors import UnknownName
from advisor.llm import ModelShape
from advisor.roofline.kernels.rows import KernelCurve


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """`calls` per layer, or per step; rows are all positions or only those that are sampled."""

    per: Literal["layer", "step"]
    rows: Literal["tokens", "sampled"] = "tokens"
    calls: int = 1


# Names as vLLM's modules have them (model_executor/models/llama.py, qwen3.py). `layernorm` runs
# before the mixer and before the feed-forward part; `qk_norm` is both norms together.
ROLES: Mapping[str, Role] = {
    "embedding": Role(per="step"),
    "layernorm": Role(per="layer", calls=2),
    "qkv_proj": Role(per="layer"),
    "qk_norm": Role(per="layer"),
    "rotary_emb": Role(per="layer"),
    "o_proj": Role(per="layer"),
    "gate_up_proj": Role(per="layer"),
    "act_fn": Role(per="layer"),
    "down_proj": Role(per="layer"),
    "final_layernorm": Role(per="step"),
    "lm_head": Role(per="step", rows="sampled"),
    "sampler": Role(per="step", rows="sampled"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRow:
    """One measured call: kernel, rows it got, seconds."""

    name: str
    rows: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCurves:
    """Curves by all positions of a step and by its sampled positions."""

    by_token: tuple[KernelCurve, ...]
    by_sampled: tuple[KernelCurve, ...]


def step_curves(model: ModelShape, rows: Iterable[KernelRow]) -> StepCurves:
    """Curves of all kernels with the model's number of calls; repeats are averaged.

    Raises `UnknownName` for a kernel that `ROLES` does not know: leaving it out would be a guess.
    """
    by_name: dict[str, dict[float, list[float]]] = {}
    for row in rows:
        if row.name not in ROLES:
            raise UnknownName("kernel", row.name, tuple(ROLES))
        by_name.setdefault(row.name, {}).setdefault(row.rows, []).append(row.seconds)
    curves = {name: _curve(name, found, model.num_layers) for name, found in by_name.items()}
    return StepCurves(
        by_token=tuple(c for n, c in curves.items() if ROLES[n].rows == "tokens"),
        by_sampled=tuple(c for n, c in curves.items() if ROLES[n].rows == "sampled"),
    )


def _curve(name: str, found: Mapping[float, list[float]], layers: int) -> KernelCurve:
    role = ROLES[name]
    points = sorted(found)
    return KernelCurve(
        name=name,
        points=np.array(points),
        seconds=np.array([float(np.mean(found[point])) for point in points]),
        calls=role.calls * (layers if role.per == "layer" else 1),
    )
