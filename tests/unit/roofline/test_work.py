"""FLOP and bytes of a known load."""

import pytest

from advisor.errors import InvalidInput
from advisor.roofline.step.batch import StepBatch
from advisor.roofline.step.served import ServedModel
from advisor.roofline.step.work import Work, served_alone, work, written_bytes_per_token
from tests.fakes.values import MODEL

SERVED = ServedModel(model=MODEL, dtype="bfloat16")


def test_a_request_alone_takes_a_step_per_chunk_and_per_further_token() -> None:
    """The last chunk yields the first token."""
    steps = list(served_alone(600, 5, max_num_batched_tokens=256))

    assert [p.new_tokens for step in steps for p in step.prefills] == [256, 256, 88]
    assert [p.cached_tokens for step in steps for p in step.prefills] == [0, 256, 512]
    assert [step.decode_contexts for step in steps[3:]] == [(601,), (602,), (603,), (604,)]


def test_chunks_change_no_arithmetic_but_that_of_the_head() -> None:
    """All pairs of a prompt are computed once, however it is cut; each chunk has one row more."""
    whole = work(SERVED, served_alone(600, 1, max_num_batched_tokens=600))
    cut = work(SERVED, served_alone(600, 1, max_num_batched_tokens=200))

    assert cut.flops - whole.flops == pytest.approx(2 * 2 * MODEL.head_parameters, rel=1e-9)
    assert cut.weight_bytes == pytest.approx(3 * whole.weight_bytes)
    assert cut.cache_written_bytes == whole.cache_written_bytes


def test_what_is_written_is_what_a_token_takes() -> None:
    """The KV bytes of the memory plan."""
    assert written_bytes_per_token(SERVED) == MODEL.kv_bytes_per_token(2)


def test_works_add_up() -> None:
    """The sum over steps is the sum of their works."""
    steps = list(served_alone(100, 3, max_num_batched_tokens=64))
    parts = [work(SERVED, [step]) for step in steps]

    total = Work()
    for one in parts:
        total += one
    assert total.steps == len(steps)
    assert total.flops == pytest.approx(work(SERVED, steps).flops)


def test_an_empty_step_does_nothing() -> None:
    assert work(SERVED, [StepBatch()]).flops == 0
    assert work(SERVED, [StepBatch()]).weight_bytes == 0


def test_a_request_without_tokens_is_refused() -> None:
    with pytest.raises(InvalidInput):
        list(served_alone(0, 1, max_num_batched_tokens=16))
