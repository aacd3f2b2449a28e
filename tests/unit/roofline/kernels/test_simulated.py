"""The simulator takes as long as the kernels of its steps say."""

import numpy as np
import pytest

from advisor.roofline.kernels import (
    DecodeTail,
    KernelStep,
    StepGap,
    graph_sizes,
    joint_attention,
    step_curves,
)
from advisor.roofline.step.batch import Prefill, StepBatch
from advisor.roofline.step.steptime import TableLimits
from advisor.simulator import Load, SchedulerSettings, simulate
from tests.fakes.kernel_tables import attention_rows, fused, kernel_rows
from tests.unit.roofline.kernels.test_step import LAWS, MODEL

PROMPT, ANSWER = 256, 6
SETTINGS = SchedulerSettings(
    num_blocks=400, max_num_seqs=8, max_num_batched_tokens=1024, max_model_len=4096
)
STEP = KernelStep(
    curves=step_curves(MODEL, kernel_rows(LAWS)),
    attention=joint_attention(
        attention_rows(fused), layers=MODEL.num_layers, tail=DecodeTail(alone=1.5, beside=1.0)
    ),
    graph_sizes=graph_sizes(8, 1024),
    gap=StepGap(step_s=1e-4, request_s=1e-6),
)


def _last(prompts: list[int], arrivals: list[float]) -> np.ndarray:
    load = Load(
        arrival_s=np.array(arrivals),
        prompt_tokens=np.array(prompts),
        output_tokens=np.full(len(prompts), ANSWER),
    )
    limits = TableLimits(max_tokens=1024, max_requests=8, max_context=4096)
    return simulate(load, SETTINGS, STEP.tables(limits)).last_token_s


def test_one_request_takes_its_prompt_and_its_decodes() -> None:
    expected = STEP.seconds(StepBatch(prefills=(Prefill(new_tokens=PROMPT),)))
    for made in range(1, ANSWER):
        expected += STEP.seconds(StepBatch(decode_contexts=(PROMPT + made,)))
    assert _last([PROMPT], [0.0])[0] == pytest.approx(expected)


def test_a_prompt_beside_a_decode_makes_a_mixed_step() -> None:
    """The second request comes while the first decodes: the step that takes it is one kernel."""
    first = STEP.seconds(StepBatch(prefills=(Prefill(new_tokens=PROMPT),)))
    expected = first
    mixed = StepBatch(decode_contexts=(PROMPT + 1,), prefills=(Prefill(new_tokens=1024 - 1),))
    expected += STEP.seconds(mixed)
    rest = StepBatch(
        decode_contexts=(PROMPT + 2,), prefills=(Prefill(new_tokens=1, cached_tokens=1024 - 1),)
    )
    expected += STEP.seconds(rest)
    for made in range(1, 4):
        expected += STEP.seconds(StepBatch(decode_contexts=(PROMPT + 2 + made, 1024 + made)))
    assert _last([PROMPT, 1024], [0.0, first / 2])[0] == pytest.approx(expected)
