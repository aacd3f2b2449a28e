"""What real engines wrote, per version: logs of starts and failures, metrics, flags."""

import json
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import pytest

from advisor.serving import EngineFacts, ServingConfig
from advisor.states import FailureKind
from probes.vllm.command import EngineSpec, serve_argv
from probes.vllm.failures import classify
from probes.vllm.flags import read_schema
from probes.vllm.metrics import parse_metrics
from probes.vllm.phases import phase_of
from probes.vllm.server_info import with_server_info
from probes.vllm.startup import read_startup, with_cache_info
from tests.golden.test_argv import CASES

GOLDENS = Path(__file__).parent / "engine"
# What each recorded failure is, with the setting to lower and its bound.
FAILURES = {
    "awq-on-plain-weights": (FailureKind.UNSUPPORTED_QUANTIZATION, "quantization", None),
    "draft-ranks": (FailureKind.INCOMPATIBLE_SETTINGS, None, None),
    "draft-vocabulary": (FailureKind.INCOMPATIBLE_SETTINGS, None, None),
    "heads-do-not-divide": (FailureKind.INCOMPATIBLE_SETTINGS, None, None),
    "lookup-bounds-swapped": (FailureKind.INCOMPATIBLE_SETTINGS, None, None),
    "sequences-above-batched-tokens": (FailureKind.INVALID_SETTING, "max_num_seqs", 8),
    "unchunked-below-model-length": (FailureKind.INCOMPATIBLE_SETTINGS, "max_model_len", 512),
    "unknown-draft-method": (FailureKind.INVALID_SETTING, None, None),
    "unknown-quantization": (FailureKind.UNSUPPORTED_QUANTIZATION, "quantization", None),
    "invalid-block-size": (FailureKind.INVALID_SETTING, "block_size", None),
    "invalid-choice": (FailureKind.INVALID_SETTING, None, None),
    # Recorded with fewer blocks than that of 0.32.
    "kv-cache-too-small-0.31.0": (FailureKind.NO_KV_MEMORY, "max_model_len", 1792),
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
    assert facts.dtype in {"bfloat16", "float32"}
    assert facts.model_runner == "V1"
    assert facts.tensor_parallel == 1
    assert facts.chunked_prefill is True
    assert facts.prefix_caching is True
    assert (facts.async_scheduling is False) == ("ngram" in path.stem)
    assert (facts.speculative_method == "ngram") == ("ngram" in path.stem)


@pytest.mark.parametrize("path", sorted(GOLDENS.glob("startup-*.log")), ids=lambda path: path.stem)
def test_a_real_start_passes_through_the_phases(path: Path) -> None:
    """Cut after any line, the log has reached a phase no earlier than with fewer lines."""
    order = ("launching", "loading", "profiling", "warming up", "opening", "serving")
    lines = path.read_text().splitlines()
    upto = [line for line, text in enumerate(lines) if "INFO" in text]
    passed = [phase_of("\n".join(lines[:end])) for end in upto]
    ended = phase_of(path.read_text())

    assert [phase for phase, _ in groupby(passed)] == list(order[: len(set(passed))])
    assert ended == "serving"


def test_two_versions_started_alike_state_the_same() -> None:
    """The same model and flags: what the reader finds differs in version and machine only."""
    first, second = (facts_of("bf16", version) for version in ("0.31.0", "0.32.0"))

    assert (first.vllm_version, second.vllm_version) == ("0.31.0", "0.32.0")
    assert elsewhere(first) == elsewhere(second)
    assert (second.max_num_seqs, second.max_num_batched_tokens) == (128, 2048)
    assert (second.async_scheduling, second.executor) == (False, "mp")
    assert (second.num_blocks, second.block_size) == (728, 128)
    assert (second.graph_mode, second.compilation_mode) == ("NONE", "NONE")


def elsewhere(facts: EngineFacts) -> EngineFacts:
    """The facts without what names version and machine."""
    return replace(facts, device_memory_bytes=None, vllm_version=None)


def facts_of(name: str, version: str) -> EngineFacts:
    """All that one recorded start said."""
    log = (GOLDENS / f"startup-{name}-{version}-cpu.log").read_text()
    metrics = (GOLDENS / f"metrics-{name}-{version}-cpu.txt").read_text()
    info = json.loads((GOLDENS / f"server-info-{name}-{version}-cpu.json").read_text())
    return with_server_info(with_cache_info(read_startup(log), parse_metrics(metrics)), info)


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

    assert tuple(argv[1 : 1 + len(schema.serve_module)]) == schema.serve_module
    assert argv[1 + len(schema.serve_module)] == "--model=m"
    assert "--enable-prompt-tokens-details" in argv
