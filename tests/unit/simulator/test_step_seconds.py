"""The time of a step in compiled code against the same tables read in plain Python."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from advisor.roofline.step.batch import Prefill, StepBatch
from advisor.roofline.step.joint import effective_contexts, joint_seconds
from advisor.roofline.step.steptime import AffineStep, JointAttention, StepTables, TableLimits
from advisor.simulator import Load, SchedulerSettings, Speculation, TracedStep, step_trace

ENGINE = SchedulerSettings(
    num_blocks=400, max_num_seqs=16, max_num_batched_tokens=96, max_model_len=1024
)
LIMITS = TableLimits(max_tokens=96, max_requests=16, max_context=1024)
Batch = Callable[[StepBatch], float]


def load() -> Load:
    """Prompts in several chunks beside decodes."""
    rng = np.random.default_rng(1)
    return Load(
        arrival_s=np.zeros(12),
        prompt_tokens=rng.integers(10, 200, 12),
        output_tokens=rng.integers(2, 40, 12),
    )


def batches(served: Load, steps: list[TracedStep]) -> list[StepBatch]:
    """What each step computed, from its trace; no preemptions, no hits, no drafts."""
    computed = np.zeros(len(served), np.int64)
    found = []
    for step in steps:
        contexts, prefills = [], []
        for request, new in step.scheduled.items():
            if computed[request] >= served.prompt_tokens[request]:
                contexts.append(float(computed[request] + 1))
            else:
                prefills.append(Prefill(new_tokens=new, cached_tokens=float(computed[request])))
            computed[request] += new
        found.append(StepBatch(decode_contexts=tuple(contexts), prefills=tuple(prefills)))
    return found


def durations(steps: list[TracedStep]) -> NDArray[np.float64]:
    """Seconds of every step but the last."""
    return np.diff([step.start_s for step in steps])


def along(grid: NDArray[np.float64], values: NDArray[np.float64], at: float) -> float:
    """Linear, last slopes go on, never below 0."""
    if len(grid) == 1:
        return float(values[0])
    low = min(max(int(np.searchsorted(grid, at, side="right")) - 1, 0), len(grid) - 2)
    slope = (values[low + 1] - values[low]) / (grid[low + 1] - grid[low])
    return max(0.0, float(values[low] + slope * (at - grid[low])))


def test_an_affine_step_takes_what_its_formula_says() -> None:
    """Without prompt pairs the tables are exact: to 1e-12."""
    step = AffineStep(fixed_s=0.01, token_s=1e-4, context_s=1e-6, request_s=1e-5)
    steps = step_trace(load(), ENGINE, step.tables(LIMITS))
    expected = [step.seconds(batch) for batch in batches(load(), steps)]
    assert durations(steps) == pytest.approx(expected[:-1], rel=1e-12)


def random_tables(rng: np.random.Generator, *, overlap: bool) -> StepTables:
    """Coarse grids, so that most steps lie between points or beyond the end."""

    def grid(last: float, count: int) -> NDArray[np.float64]:
        return np.sort(rng.uniform(1, last, count))

    return StepTables(
        tokens=grid(60, 5),
        dense_s=rng.uniform(0.01, 0.02, 5),
        rows=np.array([3.0]),
        head_s=np.array([0.002]),
        requests=grid(8, 3),
        contexts=grid(150, 4),
        decode_s=rng.uniform(0.001, 0.01, (3, 4)),
        new=grid(60, 3),
        cached=grid(100, 3),
        prefill_s=rng.uniform(0.001, 0.01, (3, 3)),
        draft_s=np.zeros(3),
        host_s=0.012,
        host_request_s=0.0005,
        async_scheduling=overlap,
    )


def plain(tables: StepTables) -> Batch:
    """The documented sum."""

    def across(
        rows: NDArray[np.float64],
        columns: NDArray[np.float64],
        values: NDArray[np.float64],
        at: tuple[float, float],
    ) -> float:
        picked = np.array([slope(columns, row, at[1]) for row in values])
        return max(0.0, slope(rows, picked, at[0]))

    def slope(grid: NDArray[np.float64], values: NDArray[np.float64], at: float) -> float:
        return along(grid, values + 100.0, at) - 100.0

    def seconds(batch: StepBatch) -> float:
        device = along(tables.tokens, tables.dense_s, batch.tokens)
        device += along(tables.rows, tables.head_s, batch.rows)
        count = len(batch.decode_contexts)
        if count:
            at = (float(count), sum(batch.decode_contexts) / count)
            device += across(tables.requests, tables.contexts, tables.decode_s, at)
        for part in batch.prefills:
            at = (part.new_tokens, part.cached_tokens)
            device += across(tables.new, tables.cached, tables.prefill_s, at)
        host = tables.host_s + tables.host_request_s * (count + len(batch.prefills))
        return max(device, host) if tables.async_scheduling else device + host

    return seconds


@pytest.mark.parametrize("overlap", [False, True])
def test_any_tables_are_read_as_documented(*, overlap: bool) -> None:
    tables = random_tables(np.random.default_rng(4), overlap=overlap)
    steps = step_trace(load(), ENGINE, tables)
    expected = [plain(tables)(batch) for batch in batches(load(), steps)]
    assert durations(steps) == pytest.approx(expected[:-1], rel=1e-9)


def test_joint_attention_takes_the_place_of_decodes_and_chunks() -> None:
    rng = np.random.default_rng(5)
    joint = JointAttention(
        new=np.array([0.0, 40.0, 90.0]),
        cached=np.array([-1.0, 0.0, 100.0]),
        requests=np.array([0.0, 4.0, 12.0]),
        contexts=np.array([0.0, 100.0]),
        seconds=rng.uniform(0.001, 0.01, (3, 3, 3, 2)),
        tail_alone=1.5,
        tail_beside=0.5,
        tail_from=3.0,
    )
    line = np.array([0.0, 1.0])
    tables = StepTables(
        tokens=line,
        dense_s=line * 1e-4,
        rows=line,
        head_s=line * 0,
        requests=line,
        contexts=line,
        decode_s=np.full((2, 2), 99.0),
        new=line,
        cached=line,
        prefill_s=np.full((2, 2), 99.0),
        draft_s=line * 0,
        joint=joint,
    )
    steps = step_trace(load(), ENGINE, tables)
    grids = (joint.new, joint.cached, joint.requests, joint.contexts)
    tail = (joint.tail_alone, joint.tail_beside, joint.tail_from)
    expected = []
    for batch in batches(load(), steps):
        tokens = sum(part.new_tokens for part in batch.prefills)
        pairs = sum(
            part.new_tokens * (part.cached_tokens + part.new_tokens / 2) for part in batch.prefills
        )
        count, total = float(len(batch.decode_contexts)), sum(batch.decode_contexts)
        longest = max(batch.decode_contexts, default=0.0)
        total = effective_contexts(float(tokens), (count, float(total), longest), tail)
        seconds = joint_seconds(grids, joint.seconds, (float(tokens), float(pairs), count, total))
        expected.append(seconds + 1e-4 * batch.tokens)
    assert durations(steps) == pytest.approx(expected[:-1], rel=1e-9)


def test_a_drafting_step_pays_for_all_positions_and_for_the_drafts() -> None:
    """Three drafts: four positions a decode, and the drafter's time once a step."""
    step = AffineStep(fixed_s=1.0, token_s=0.01, draft_s=0.5)
    drafts = Speculation(num_speculative_tokens=3, survival=(0.0,) * 3)
    one = Load(arrival_s=np.zeros(1), prompt_tokens=np.array([20]), output_tokens=np.array([4]))
    engine = SchedulerSettings(
        num_blocks=50,
        max_num_seqs=4,
        max_num_batched_tokens=64,
        max_model_len=256,
        speculation=drafts,
    )
    steps = step_trace(one, engine, step.tables(LIMITS))
    assert durations(steps) == pytest.approx([1.7, 1.54, 1.54])
