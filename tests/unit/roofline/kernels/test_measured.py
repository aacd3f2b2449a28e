"""A profile and an engine's settings make a step model."""

import numpy as np
import pytest

from advisor.errors import InvalidInput
from advisor.hardware.interconnect import AllReduce, line
from advisor.roofline.kernels import KernelProfile, ProfiledEngine, StepGap, measured_step
from advisor.roofline.step.batch import StepBatch
from tests.fakes.kernel_tables import attention_rows, fused, kernel_rows
from tests.unit.roofline.kernels.test_step import LAWS, LAYERS, MODEL

PROFILE = KernelProfile(
    kernels=tuple(kernel_rows(LAWS)), attention=attention_rows(fused), multiprocessors=8
)
LINK = line(ranks=2, floor_s=1e-5, bus_bytes_per_s=1e9, source="planted")
EQUAL = StepBatch(decode_contexts=(256.0,) * 4)


def _engine(
    *, tensor_parallel: int = 1, all_reduce: AllReduce | None = None, cuda_graphs: bool = True
) -> ProfiledEngine:
    return ProfiledEngine(
        max_num_seqs=8,
        max_num_batched_tokens=512,
        gap=StepGap(),
        tensor_parallel=tensor_parallel,
        all_reduce=all_reduce,
        cuda_graphs=cuda_graphs,
    )


def test_an_engine_on_one_card_takes_the_sum_of_its_kernels() -> None:
    expected = LAYERS * (2 * LAWS["layernorm"](4) + LAWS["qkv_proj"](4) + fused(0, 0, 4, 256))
    expected += LAWS["embedding"](4) + LAWS["lm_head"](4)
    assert measured_step(MODEL, PROFILE, _engine()).seconds(EQUAL) == pytest.approx(expected)


def test_two_ranks_add_up_their_hidden_states_and_gather_their_logits() -> None:
    alone = measured_step(MODEL, PROFILE, _engine()).seconds(EQUAL)
    pair = measured_step(MODEL, PROFILE, _engine(tensor_parallel=2, all_reduce=LINK))
    sums = (2 * LAYERS + 1) * float(LINK.seconds(np.array([4 * 64 * 2.0]))[0])
    logits = float(LINK.seconds(np.array([4 * 256 * 2.0]))[0]) / 2
    assert pair.seconds(EQUAL) == pytest.approx(alone + sums + logits)


def test_unequal_decodes_cost_more_where_the_device_is_known() -> None:
    unequal = StepBatch(decode_contexts=(64.0,) * 7 + (2048.0,))
    known = measured_step(MODEL, PROFILE, _engine())
    unknown = measured_step(
        MODEL,
        KernelProfile(kernels=PROFILE.kernels, attention=PROFILE.attention),
        _engine(),
    )
    assert known.seconds(unequal) > unknown.seconds(unequal)
    assert known.seconds(EQUAL) == pytest.approx(unknown.seconds(EQUAL))


def test_graphs_pad_unless_they_are_off() -> None:
    five = StepBatch(decode_contexts=(256.0,) * 5)
    padded = measured_step(MODEL, PROFILE, _engine()).seconds(five)
    assert padded > measured_step(MODEL, PROFILE, _engine(cuda_graphs=False)).seconds(five)


def test_links_are_told_for_several_ranks_only() -> None:
    with pytest.raises(InvalidInput, match="several ranks"):
        _engine(tensor_parallel=2)
    with pytest.raises(InvalidInput, match="4 ranks"):
        _engine(tensor_parallel=4, all_reduce=LINK)
