"""Uploads as columns for the tests of subsets and of derived traffic."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from advisor.traffic.facts import Facts, facts_of


def population(
    *,
    prompts: Sequence[int],
    outputs: Sequence[int],
    arrivals: Sequence[float] | None = None,
    labels: Sequence[str] | None = None,
    sessions: Sequence[int] | None = None,
) -> Facts:
    """Facts with these columns; everything else is not known."""
    count = len(prompts)
    empty = facts_of((), None)
    names = tuple(sorted(set(labels))) if labels is not None else ()
    filled = {
        "arrival_s": np.full(count, np.nan),
        "temperature": np.full(count, np.nan),
        "duration_s": np.full(count, np.nan),
        "code": np.full(count, np.nan),
        "prompt_source": np.ones(count, dtype=np.int8),
        "output_source": np.ones(count, dtype=np.int8),
        "kind": np.full(count, 2, dtype=np.int8),
        "structured": np.full(count, -1, dtype=np.int8),
        "prompt_tokens": np.array(prompts, dtype=np.int64),
        "output_tokens": np.array(outputs, dtype=np.int64),
        "max_tokens": np.full(count, -1, dtype=np.int64),
        "text_chars": np.full(count, -1, dtype=np.int64),
        **{
            name: np.full(count, -1, dtype=np.int32)
            for name in (
                *("label", "session", "model", "turns", "tools", "tool_turns"),
                *("images", "language"),
            )
        },
        **{name: np.zeros(count, dtype=np.uint64) for name in ("content", "head", "answer")},
    }
    if arrivals is not None:
        filled["arrival_s"] = np.array(arrivals, dtype=np.float64)
    if labels is not None:
        filled["label"] = np.array([names.index(name) for name in labels], dtype=np.int32)
    if sessions is not None:
        filled["session"] = np.array(sessions, dtype=np.int32)
    return replace(empty, labels=names, **filled)  # type: ignore[arg-type]


def mixture(count: int, seed: int = 0) -> Facts:
    """Two planted classes: 30 % "long" (long prompts, short outputs), 70 % "short", in bursts."""
    rng = np.random.default_rng(seed)
    long = rng.random(count) < 0.3
    prompts = np.where(long, rng.lognormal(8, 0.4, count), rng.lognormal(5, 0.6, count))
    outputs = np.where(long, rng.lognormal(3, 0.5, count), rng.lognormal(6, 0.5, count))
    gaps = rng.gamma(0.25, 4.0, count)
    return population(
        prompts=prompts.astype(int).tolist(),
        outputs=outputs.astype(int).tolist(),
        arrivals=np.cumsum(gaps).tolist(),
        labels=["long" if is_long else "short" for is_long in long],
    )
