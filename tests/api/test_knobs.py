"""`--config`: a command or pairs, in vLLM's words."""

import pytest

from advisor.errors import InvalidInput
from api.cli.knobs import knobs_of

NGRAM = '{"method":"ngram","num_speculative_tokens":3}'


def test_nothing_is_vllms_own_defaults() -> None:
    assert knobs_of([]).config.levers.max_num_seqs is None
    assert knobs_of([]).words.tensor_parallel_size == 1


@pytest.mark.parametrize(
    "given",
    [
        ["vllm serve org/model --max-num-seqs 8 -tp 2 --kv-cache-dtype=fp8 --max-model-len 4k"],
        ["max_num_seqs=8 tensor_parallel_size=2", "kv_cache_dtype=fp8", "max_model_len=4k"],
    ],
)
def test_a_command_and_pairs_are_the_same(given: list[str]) -> None:
    """Whatever the spelling."""
    knobs = knobs_of(given)

    assert knobs.config.levers.max_num_seqs == 8
    assert knobs.config.levers.kv_cache_dtype == "fp8"
    assert knobs.config.functional.max_model_len == 4000
    assert knobs.words.tensor_parallel_size == 2
    assert knobs.notes == ()


@pytest.mark.parametrize(
    "given", [f"speculative_config={NGRAM}", f"vllm serve x --speculative-config '{NGRAM}'"]
)
def test_json_keeps_its_quotes(given: str) -> None:
    """In a pair and in a command."""
    drafts = knobs_of([given]).config.levers.speculative_config

    assert drafts is not None
    assert drafts.num_speculative_tokens == 3


def test_switches_are_true_and_false() -> None:
    knobs = knobs_of(["enable_prefix_caching=false", "enforce_eager=true"])

    assert knobs.config.levers.enable_prefix_caching is False
    assert knobs.config.functional.enforce_eager is True


def test_the_schedulers_own_words_are_kept() -> None:
    words = knobs_of(["scheduling_policy=priority long_prefill_token_threshold=256"]).words

    assert words.scheduling_policy == "priority"
    assert words.long_prefill_token_threshold == 256


@pytest.mark.parametrize(
    "given",
    [
        "vllm serve x --tensor-parallel-size",
        "tensor_parallel_size=two",
        "long_prefill_token_threshold=-1",
        "scheduling_policy=lifo",
        "max_num_seqs=many",
        "vllm serve 'x",
        "speculative_config={method:ngram}",
    ],
)
def test_what_vllm_would_not_take_is_refused(given: str) -> None:
    """With the setting's name."""
    with pytest.raises(InvalidInput):
        knobs_of([given])
