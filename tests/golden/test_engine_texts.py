"""What real engines wrote, per version: logs of starts and failures, metrics, flags."""

import json
from pathlib import Path

import pytest

from advisor.serving import ServingConfig
from advisor.states import FailureKind
from probes.vllm.command import EngineSpec, serve_argv
from probes.vllm.failures import classify
from probes.vllm.flags import read_schema
from probes.vllm.metrics import parse_metrics
from probes.vllm.startup import read_startup, with_cache_info
from tests.golden.test_argv import CASES

GOLDENS = Path(__file__).parent / "engine"
# What each recorded failure is, with the setting to lower and its bound.
FAILURES = {
    "invalid-block-size": (FailureKind.INVALID_SETTING, "block_size", None),
    "invalid-choice": (FailureKind.INVALID_SETTING, None, None),
    "kv-cache-too-small": (FailureKind.NO_KV_MEMORY, "max_model_len", 1920),
    "max-model-len-over-derived": (FailureKind.INVALID_SETTING, "max_model_len", 8192),
    "not-enough-memory": (FailureKind.NO_KV_MEMORY, None, None),
    "port-in-use": (FailureKind.PORT_IN_USE, None, None),
    "unknown-model": (FailureKind.MODEL_NOT_FOUND, None, None),
    "weights-truncated": (FailureKind.BAD_WEIGHTS, None, None),
}


@pytest.mark.parametrize("path", sorted(GOLDENS.glob("fail-*.log")), ids=lambda path: path.stem)
def test_a_real_failure_has_a_name(path: Path) -> None:
    """Never "unknown crash" where the log says why."""
    name = next(name for name in FAILURES if path.stem.startswith(f"fail-{name}"))
    failure = classify(path.read_text(), exit_code=1)

    assert (failure.kind, failure.setting, failure.bound) == FAILURES[name]


def test_every_named_failure_is_recorded() -> None:
    """A name without its log proves nothing."""
    stems = [path.stem for path in GOLDENS.glob("fail-*.log")]

    assert all(any(stem.startswith(f"fail-{name}-") for stem in stems) for name in FAILURES)


@pytest.mark.parametrize("path", sorted(GOLDENS.glob("startup-*.log")), ids=lambda path: path.stem)
def test_a_real_start_states_its_capacity(path: Path) -> None:
    """Tokens, concurrency and length agree for a plain attention model."""
    facts = read_startup(path.read_text())

    assert facts.vllm_version is not None
    assert facts.vllm_version in path.stem
    assert facts.kv_cache_tokens is not None
    assert facts.max_concurrency is not None
    assert facts.max_model_len is not None
    assert facts.kv_cache_tokens / facts.max_model_len == pytest.approx(
        facts.max_concurrency, rel=0.01
    )
    assert facts.dtype == ("bfloat16" if "bf16" in path.stem else "float32")
    assert (facts.async_scheduling is False) == ("ngram" in path.stem)


@pytest.mark.parametrize("path", sorted(GOLDENS.glob("metrics-*.txt")), ids=lambda path: path.stem)
def test_real_metrics_hold_together(path: Path) -> None:
    """Accepted by position sums up to accepted, none above the drafts; the cache is described."""
    snapshot = parse_metrics(path.read_text())
    drafts = snapshot.totals.get("vllm:spec_decode_num_drafts_total", 0)
    accepted = snapshot.totals.get("vllm:spec_decode_num_accepted_tokens_total", 0)

    assert sum(snapshot.accepted_per_position) == accepted
    assert all(count <= drafts for count in snapshot.accepted_per_position)
    assert with_cache_info(read_startup(""), snapshot).num_blocks


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("path", sorted(GOLDENS.glob("flags-*.json")), ids=lambda path: path.stem)
def test_a_real_engine_has_every_flag_that_is_sent(path: Path, name: str) -> None:
    """Each configuration of the command goldens, against the flags of each version."""
    schema = read_schema(json.loads(path.read_text()))
    config: ServingConfig = CASES[name][1]
    engine = EngineSpec(interpreter="python", launcher=None, schema=schema)
    argv = serve_argv(engine, config, model_path="m", port=1, served_model_name="t")

    assert argv[1:3] == ["-m", schema.serve_module[-1]]
    assert "--enable-prompt-tokens-details" in argv
