"""The second reading of an engine's memory, on what real engines wrote."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from probes.vllm.metrics import parse_metrics
from probes.vllm.server_info import with_server_info
from probes.vllm.startup import read_startup, with_cache_info
from tests.fakes.values import MODEL
from tests.measure.memory import (
    cache_labels,
    facts_against_log,
    facts_against_metrics,
    model_against_engine,
)

ENGINES = Path(__file__).parent / "engine"


@pytest.mark.parametrize("version", ["0.31.0", "0.32.0"])
def test_both_readings_agree_and_the_model_predicts_them(version: str) -> None:
    """Tokens, blocks, concurrency and bytes within 1 %, for each version's recorded start."""
    log = (ENGINES / f"startup-bf16-{version}-cpu.log").read_text()
    metrics = (ENGINES / f"metrics-bf16-{version}-cpu.txt").read_text()
    info = json.loads((ENGINES / f"server-info-bf16-{version}-cpu.json").read_text())
    facts = with_server_info(with_cache_info(read_startup(log), parse_metrics(metrics)), info)
    labels = cache_labels(metrics)
    pairs = [
        *facts_against_log(facts, log),
        *facts_against_metrics(facts, labels),
        *model_against_engine(MODEL, facts, labels),
    ]

    assert len(pairs) == 11
    assert max(pair.error for pair in pairs) <= 0.01


def test_a_wrong_or_missing_figure_is_an_error() -> None:
    """The row can fail: a block count that is off by a twentieth, and one that is not there."""
    labels = cache_labels((ENGINES / "metrics-bf16-0.32.0-cpu.txt").read_text())
    right = with_cache_info(
        read_startup(""), parse_metrics((ENGINES / "metrics-bf16-0.32.0-cpu.txt").read_text())
    )
    off = facts_against_metrics(replace(right, num_blocks=692), labels)
    missing = facts_against_metrics(replace(right, block_size=None), labels)

    assert max(pair.error for pair in off) == pytest.approx(36 / 728)
    assert max(pair.error for pair in missing) == 1.0
