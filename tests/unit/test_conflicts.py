"""Settings that exclude each other are told before an engine is started."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.conflicts import Combination, Drafting, combination_of, conflicts, refusals
from advisor.serving import FunctionalSettings, Levers, NgramSpeculation, ServingConfig
from tests.fakes.values import MODEL

CUDA = Combination(build="cuda")


def settings_of(asked: Combination) -> list[tuple[str, ...]]:
    """Which settings are in conflict."""
    return [conflict.settings for conflict in conflicts(asked)]


def test_the_batched_token_limit_against_the_model_length(shared: Path) -> None:
    """Case E-14: a and c are illegal, b and d are legal."""
    cases = json.loads((shared / "cases" / "e14_batched_tokens.json").read_text())["configs"]
    legal = {}
    for case in cases:
        asked = Combination(
            build="cuda",
            chunked_prefill=case["enable_chunked_prefill"],
            max_num_batched_tokens=case["max_num_batched_tokens"],
            max_num_seqs=case.get("max_num_seqs"),
            max_model_len=case["max_model_len"],
        )
        legal[case["id"]] = not settings_of(asked)

    assert legal == {"a": False, "b": True, "c": False, "d": True}


def test_a_draft_that_does_not_match_its_target(shared: Path) -> None:
    """Case E-07: the vocabularies and the ranks are named, with what would be legal."""
    case = json.loads((shared / "cases" / "e07_vocab.json").read_text())
    target, draft, drafting = case["target"], case["draft"], case["speculative"]
    asked = Combination(
        build="cuda",
        model=replace(MODEL, vocab_size=target["vocab_size"]),
        tensor_parallel=target["tensor_parallel_size"],
        drafting=Drafting(
            method=drafting["method"],
            tokens=drafting["num_speculative_tokens"],
            tensor_parallel=drafting["draft_tensor_parallel_size"],
            vocabulary=draft["vocab_size"],
        ),
    )
    reasons = " ".join(conflict.text for conflict in conflicts(asked))

    assert "vocab 151936 != 152064" in reasons
    assert "draft TP 2 is neither 1 nor 4" in reasons


def test_a_draft_of_another_vocabulary_can_be_asked_for() -> None:
    """The engine's own opt-in is no conflict."""
    drafting = Drafting(method="draft_model", vocabulary=1, heterogeneous_vocabulary=True)

    assert settings_of(replace(CUDA, model=MODEL, drafting=drafting)) == []


@pytest.mark.parametrize(
    "asked, settings",
    [
        (replace(CUDA, block_size=24), ("block_size",)),
        (Combination(build="cpu", block_size=48, model=MODEL), ("block_size",)),
        (
            replace(CUDA, drafting=Drafting(method="ngram", lookup_min=4, lookup_max=2)),
            ("speculative_config",),
        ),
        (
            replace(CUDA, async_scheduling=True, drafting=Drafting(method="ngram")),
            ("async_scheduling", "speculative_config"),
        ),
        (
            Combination(build="cpu", drafting=Drafting(method="eagle", rejection="synthetic")),
            ("speculative_config",),
        ),
        (replace(CUDA, reports_drafts=True), ("per_request_spec_decode_metrics",)),
        (replace(CUDA, tensor_parallel=7, model=MODEL), ("tensor_parallel_size",)),
    ],
)
def test_every_other_rule_names_its_settings(asked: Combination, settings: tuple[str, ...]) -> None:
    """One rule each, and nothing else is said."""
    assert settings_of(asked) == [settings]


@pytest.mark.parametrize(
    "asked",
    [
        CUDA,
        replace(CUDA, block_size=48),
        Combination(build="cpu", block_size=64, model=MODEL),
        Combination(build="cpu", block_size=16),
        replace(CUDA, async_scheduling=True, drafting=Drafting(method="eagle3")),
        replace(CUDA, drafting=Drafting(method="eagle", rejection="synthetic")),
        replace(CUDA, drafting=Drafting(method="ngram", by_batch_size=True)),
        replace(CUDA, max_num_batched_tokens=128, chunked_prefill=False),
    ],
)
def test_what_is_legal_or_not_known_is_not_refused(asked: Combination) -> None:
    """The table only prunes: a setting that was not stated is the engine's to judge."""
    assert settings_of(asked) == []


def test_a_setting_that_would_be_dropped_is_told_and_not_refused() -> None:
    """Handbook 13.22: the engine starts with data parallelism, without the lengths by batch."""
    drafting = Drafting(method="eagle", by_batch_size=True)
    asked = replace(CUDA, data_parallel=2, drafting=drafting)

    assert [conflict.ignored for conflict in conflicts(asked)] == [True]
    assert list(refusals(asked)) == []


def test_a_configuration_without_a_length_serves_the_models_own() -> None:
    """Unchunked, a prompt of that length must fit a step."""
    config = ServingConfig(
        functional=FunctionalSettings(),
        levers=Levers(enable_chunked_prefill=False, max_num_batched_tokens=64),
    )
    known = combination_of(config, "cpu", model=MODEL)

    assert known.max_model_len == MODEL.max_position_embeddings
    assert len(conflicts(known)) == 1
    assert conflicts(combination_of(config, "cpu")) == ()


def test_a_configurations_drafts_are_judged() -> None:
    """The lookup bounds and the draft's vocabulary reach the table."""
    config = ServingConfig(
        levers=Levers(speculative_config=NgramSpeculation(num_speculative_tokens=3))
    )
    asked = combination_of(config, "cpu", model=MODEL, draft_vocabulary=MODEL.vocab_size + 64)

    assert asked.drafting is not None
    assert asked.drafting.lookup_max == 4
    assert settings_of(asked) == [("speculative_config",)]
