"""Representative subsets of public traces, against random ones of the same size."""

import csv
import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

from advisor.traffic.facts import Facts
from advisor.traffic.reuse.kinship import Chains
from advisor.traffic.sampling.subset import representative, subset_distance
from tests.unit.traffic.population import population

Trace = tuple[Facts, Chains | None]
RANDOM_DRAWS = 5
MOONCAKE_BLOCK = 512


def azure(folder: Path, kind: str) -> Trace:
    """Times and counts."""
    path = folder / "azure_2023" / f"AzureLLMInferenceTrace_{kind}.csv"
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    times = [datetime.fromisoformat(row["TIMESTAMP"][:26]).timestamp() for row in rows]
    facts = population(
        prompts=[int(row["ContextTokens"]) for row in rows],
        outputs=[int(row["GeneratedTokens"]) for row in rows],
        arrivals=[time - times[0] for time in times],
    )
    return facts, None


def mooncake(folder: Path, kind: str) -> Trace:
    """Times, counts and the blocks of the prompts."""
    text = (folder / "mooncake_fast25" / f"{kind}_trace.jsonl").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in text.splitlines()]
    facts = population(
        prompts=[row["input_length"] for row in rows],
        outputs=[row["output_length"] for row in rows],
        arrivals=[row["timestamp"] / 1000 for row in rows],
    )
    return facts, Chains.of([row["hash_ids"] for row in rows], MOONCAKE_BLOCK)


@pytest.mark.parametrize(
    "read, kind",
    [(azure, "code"), (azure, "conv"), (mooncake, "conversation"), (mooncake, "synthetic")],
)
def test_a_subset_is_nearer_to_a_public_trace_than_random_ones(
    shared: Path, read: Callable[[Path, str], Trace], kind: str
) -> None:
    """In lengths, reuse and burstiness each, at 64 and at 512 requests; and 512 are near."""
    facts, chains = read(shared / "data" / "traffic", kind)
    rng = np.random.default_rng(7)
    for size in (64, 512):
        found = representative(facts, size=size, seed=1, chains=chains).distance
        draws = [
            subset_distance(
                facts, rng.choice(len(facts), size, replace=False).tolist(), chains=chains
            )
            for _ in range(RANDOM_DRAWS)
        ]

        assert found.lengths < 0.5 * min(draw.lengths for draw in draws)
        assert found.total < min(draw.total for draw in draws)
        assert found.burstiness is not None
        assert found.burstiness <= np.median([draw.burstiness for draw in draws])
        if found.reuse is not None:
            assert found.reuse < 0.5 * min(draw.reuse or 0 for draw in draws)
        assert found.total < (1 if size < 512 else 0.15)
