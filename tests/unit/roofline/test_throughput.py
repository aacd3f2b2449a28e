"""Throughput of a closed loop and what changing a configuration gains, before any probe."""

from dataclasses import replace

import pytest

from advisor.errors import InvalidInput, UnknownName
from advisor.roofline.step.efficiency import exact_efficiency
from advisor.roofline.throughput import (
    TrafficShape,
    batch_limit,
    predict_gain,
    predict_throughput,
    served_dtype,
)
from advisor.serving import FunctionalSettings, Levers, NgramSpeculation, ServingConfig
from tests.fakes.planted_world import DEVICE, MODEL, estimate

SHAPE = TrafficShape(
    prompt_tokens=200,
    output_tokens=60,
    cached_share=estimate(0.5, 0.4, 0.6),
    tokens_per_step=estimate(2.0, 1.8, 2.2),
    draft_length=4,
    draft_tokens_per_step=3.0,
)
PLAIN = ServingConfig()
ONE_SLOT = ServingConfig(levers=Levers(max_num_seqs=1))
UNCACHED = ServingConfig(levers=Levers(enable_prefix_caching=False))
WIDE = ServingConfig(levers=Levers(dtype="float32"))
DRAFTING = ServingConfig(
    levers=Levers(speculative_config=NgramSpeculation(num_speculative_tokens=4))
)


def gain(first: ServingConfig, second: ServingConfig, concurrency: int = 16) -> float:
    """Predicted throughput of `second` over `first`."""
    return predict_gain(MODEL, DEVICE, (first, second), shape=SHAPE, concurrency=concurrency).value


def test_a_single_slot_serves_any_load_at_the_pace_of_one() -> None:
    """Requests wait outside of the batch."""
    alone = predict_throughput(MODEL, DEVICE, PLAIN, shape=SHAPE, concurrency=1)
    queued = predict_throughput(MODEL, DEVICE, ONE_SLOT, shape=SHAPE, concurrency=16)

    assert queued == alone


def test_batching_pays_more_the_shorter_the_prompts() -> None:
    """Prefill is compute-bound: a batch shares no part of it."""
    short, long = replace(SHAPE, prompt_tokens=50), replace(SHAPE, prompt_tokens=2000)
    gains = [
        predict_gain(MODEL, DEVICE, (ONE_SLOT, PLAIN), shape=shape, concurrency=16).value
        for shape in (short, long)
    ]

    assert gains[0] > gains[1] > 1


def test_a_cache_gains_what_it_saves_of_the_prefill() -> None:
    """And nothing where nothing is shared."""
    unshared = replace(SHAPE, cached_share=estimate(0, 0, 0))
    none = predict_gain(MODEL, DEVICE, (UNCACHED, PLAIN), shape=unshared, concurrency=16)

    assert gain(UNCACHED, PLAIN) > 1.1
    assert none.value == none.low == none.high == 1.0


def test_speculation_pays_alone_and_not_in_a_full_batch() -> None:
    """Verification needs arithmetic that a batch does not leave."""
    assert gain(PLAIN, DRAFTING, 1) > 1.2
    assert gain(PLAIN, DRAFTING, 1) > gain(PLAIN, DRAFTING, 64)


def test_fewer_drafted_tokens_cost_less_to_verify() -> None:
    """Steps without a draft verify nothing; unknown is taken as a full draft every time."""
    rarely = replace(SHAPE, draft_tokens_per_step=0.5)
    always = replace(SHAPE, draft_tokens_per_step=None)
    gains = [
        predict_gain(MODEL, DEVICE, (PLAIN, DRAFTING), shape=shape, concurrency=64).value
        for shape in (rarely, always)
    ]

    assert gains[0] > gains[1]


def test_halving_the_bytes_speeds_up_a_memory_bound_decode() -> None:
    """At batch 1 nothing but weight bytes counts."""
    exact = exact_efficiency()
    decode = TrafficShape(prompt_tokens=1, output_tokens=1000)
    doubled = predict_gain(
        MODEL, DEVICE, (WIDE, PLAIN), shape=decode, concurrency=1, efficiency=exact
    )

    assert doubled.value == pytest.approx(2.0, rel=0.01)


def test_rates_of_two_dtypes_vary_apart() -> None:
    """The interval across dtypes is wider than within one."""
    across = predict_gain(MODEL, DEVICE, (WIDE, PLAIN), shape=SHAPE, concurrency=16)
    within = predict_gain(MODEL, DEVICE, (UNCACHED, PLAIN), shape=SHAPE, concurrency=16)

    assert across.high / across.low > within.high / within.low


def test_a_gain_over_oneself_is_exactly_one() -> None:
    """Both sides sit on the same machine."""
    same = predict_gain(MODEL, DEVICE, (PLAIN, PLAIN), shape=SHAPE, concurrency=16)

    assert (same.low, same.value, same.high) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    "saved,lever,served",
    [
        ("bfloat16", None, "bfloat16"),
        ("float16", "auto", "float16"),
        ("float32", "auto", "bfloat16"),
        ("bfloat16", "float32", "float32"),
    ],
)
def test_the_served_dtype_follows_the_engines_rule(
    saved: str, lever: str | None, served: str
) -> None:
    """`auto` keeps a 16-bit checkpoint and narrows a 32-bit one."""
    config = ServingConfig(levers=Levers(dtype=lever))

    assert served_dtype(replace(MODEL, dtype=saved), config) == served


def test_the_cache_limits_the_batch() -> None:
    """One GiB holds few long requests, what vLLM leaves of the machine's memory holds more."""
    small = ServingConfig(functional=FunctionalSettings(kv_cache_space_gib=1))
    per_request = 100_000

    assert batch_limit(MODEL, DEVICE, PLAIN, 10) == 128
    assert 1 < batch_limit(MODEL, DEVICE, PLAIN, per_request) < 128
    assert batch_limit(MODEL, DEVICE, small, 10) == 128
    assert batch_limit(MODEL, DEVICE, small, per_request) == 1


def test_a_long_prompt_is_computed_in_chunks() -> None:
    """More chunks, more weight reads."""
    chunked = ServingConfig(levers=Levers(max_num_batched_tokens=16))

    assert gain(PLAIN, chunked) < 1


def test_a_fully_cached_prompt_still_computes_its_last_token() -> None:
    """The engine looks up all but one token."""
    whole = replace(SHAPE, prompt_tokens=1, cached_share=estimate(1, 1, 1))

    assert predict_throughput(MODEL, DEVICE, PLAIN, shape=whole, concurrency=1).value > 0


def test_what_the_upload_cannot_tell_is_an_error_and_not_a_guess() -> None:
    """Null is never zero."""
    lengths = TrafficShape(prompt_tokens=200, output_tokens=60)
    other = ServingConfig(
        levers=Levers(speculative_config=NgramSpeculation(num_speculative_tokens=2))
    )

    with pytest.raises(InvalidInput, match="tokens_per_step"):
        predict_throughput(MODEL, DEVICE, DRAFTING, shape=lengths, concurrency=1)
    with pytest.raises(InvalidInput, match="drafts of 2"):
        predict_throughput(MODEL, DEVICE, other, shape=SHAPE, concurrency=1)
    with pytest.raises(InvalidInput, match="cached_share"):
        predict_gain(MODEL, DEVICE, (PLAIN, UNCACHED), shape=lengths, concurrency=1)
    with pytest.raises(UnknownName):
        predict_throughput(
            MODEL,
            DEVICE,
            ServingConfig(levers=Levers(dtype="float16")),
            shape=SHAPE,
            concurrency=1,
        )
    with pytest.raises(InvalidInput, match="concurrency"):
        predict_throughput(MODEL, DEVICE, PLAIN, shape=SHAPE, concurrency=0)


@pytest.mark.parametrize(
    "build",
    [
        lambda: TrafficShape(prompt_tokens=0, output_tokens=1),
        lambda: replace(SHAPE, cached_share=estimate(0.5, 0.4, 1.1)),
        lambda: replace(SHAPE, tokens_per_step=estimate(1.0, 0.9, 1.1)),
    ],
    ids=["empty prompt", "share above 1", "less than a token"],
)
def test_a_shape_cannot_be_wrong(build: object) -> None:
    """Refused where it is made."""
    assert callable(build)
    with pytest.raises(InvalidInput):
        build()
