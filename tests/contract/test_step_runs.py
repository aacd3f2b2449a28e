"""Step times of the planted engine, by runs of equal requests."""

import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from advisor.measurement.step_plan import RunKind, StepRun
from advisor.measurement.steps import step_table
from advisor.serving import Levers, NgramSpeculation, ServingConfig
from probes.measure.own import OwnServer
from probes.measure.step_runs import TimedRuns, time_runs
from probes.vllm.server import start_engine
from tests.fakes.engines import planted_plan

pytestmark = pytest.mark.processes

STEP_S = 0.02
TRUTH = {"base_step_s": STEP_S, "token_s": 1e-6}
NGRAM = ServingConfig(levers=Levers(speculative_config=NgramSpeculation(num_speculative_tokens=2)))


def runs(kind: RunKind, batch: int, *, drafted: int = 0) -> list[StepRun]:
    """A pair that differs in what it generates."""
    return [
        StepRun(
            kind=kind, batch=batch, prompt_tokens=16, output_tokens=tokens, draft_tokens=drafted
        )
        for tokens in (4, 24)
    ]


def timed(
    folder: Path, truth: Mapping[str, object], config: ServingConfig, asked: list[StepRun]
) -> TimedRuns:
    """One round on an engine of its own."""
    heard: list[tuple[int, int]] = []
    with start_engine(planted_plan(folder, truth, config)) as engine:
        found = time_runs(
            OwnServer(engine=engine),
            asked,
            vocab_size=1000,
            repeats=1,
            seed=3,
            cancelled=threading.Event(),
            told=lambda done, total: heard.append((done, total)),
        )
    assert heard[-1] == (len(asked) * 2, len(asked) * 2)
    return found


def test_the_time_of_a_step_is_the_difference_of_two_lengths(tmp_path: Path) -> None:
    """Prefill and what is around it cancel out."""
    found = timed(tmp_path, TRUTH, ServingConfig(), runs(RunKind.DECODE, 2))
    cell = step_table(found.timings, max_num_batched_tokens=2048).cell(2)

    assert cell is not None
    assert 0.9 * STEP_S < cell.seconds.value < 1.6 * STEP_S
    assert found.accepted_share is None
    assert found.flaw is None


def test_drafts_that_are_accepted_make_a_verification_run_useless(tmp_path: Path) -> None:
    """It says so: such a run has fewer steps than tokens."""
    truth = {**TRUTH, "acceptance": [{"contains": "", "per_position": [0.9, 0.8]}]}
    found = timed(tmp_path, truth, NGRAM, runs(RunKind.VERIFY, 1, drafted=2))

    assert found.accepted_share is not None
    assert found.accepted_share > 0.5
    assert found.flaw is not None
