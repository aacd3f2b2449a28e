"""The simulator against schedules that vLLM's own scheduler wrote, step by step."""

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from advisor.roofline.step.steptime import AffineStep, TableLimits
from advisor.simulator import (
    CacheGroup,
    Load,
    SchedulerSettings,
    Speculation,
    TracedStep,
    simulate,
    step_trace,
)
from probes.settings import engine_environment
from tests.golden.scheduler.cases import FILES, prompt_tokens

GOLDENS = Path(__file__).parent / "scheduler"
ROOT = Path(__file__).parents[2]
SAMPLED = 900
# One second a step, so that the time of a step is its number.
STEP = AffineStep(fixed_s=1.0)
LIMITS = TableLimits(max_tokens=1024, max_requests=64, max_context=1024)
TRACES = {
    trace["name"]: trace
    for path in sorted(GOLDENS.glob("*.json"))
    for trace in json.loads(path.read_text())["traces"]
}
# Recurrent states kept in the prefix cache ("align" mode) are not simulated yet.
NOT_SIMULATED = ("aligned state", "aligned state preemption")
CASES = sorted(set(TRACES) - set(NOT_SIMULATED))
# One case each of what differs most; all of them take half a minute.
RENEWED = ("k4 priority preemption", "window preemption", "ahead preemption", "watermark")


def speculation(recorded: dict[str, Any] | None) -> Speculation | None:
    if recorded is None:
        return None
    count = recorded["num_speculative_tokens"]
    return Speculation(
        num_speculative_tokens=count,
        survival=(1.0,) * count,
        schedule=tuple((first, last, k) for first, last, k in recorded["schedule"]),
        lookahead=recorded["lookahead"],
        draft_slots=recorded["draft_slots"],
    )


def settings(recorded: dict[str, Any]) -> SchedulerSettings:
    return SchedulerSettings(
        **{
            **recorded,
            "speculation": speculation(recorded["speculation"]),
            "groups": tuple(CacheGroup(**group) for group in recorded["groups"]),
        }
    )


def load(requests: list[dict[str, Any]], recorded: dict[str, Any]) -> Load:
    """The recorded requests; whole blocks that begin alike get one identifier.

    A scheduler that works ahead decides step t while step t - 1 begins: later ones are not known.
    """
    block_size = recorded["block_size"]
    ahead = int(recorded["async_scheduling"])
    known: dict[tuple[int, tuple[int, ...]], int] = {}
    blocks: list[int] = []
    starts = [0]
    for row in requests:
        tokens = prompt_tokens(row["prompt"]) + [SAMPLED] * row["output"]
        before = -1
        for first in range(0, len(tokens) - block_size + 1, block_size):
            content = (before, tuple(tokens[first : first + block_size]))
            before = known.setdefault(content, len(known))
            blocks.append(before)
        starts.append(len(blocks))
    yields = [row.get("accepted", []) for row in requests]
    return Load(
        arrival_s=np.array([max(0, row["step"] - ahead) for row in requests], dtype=np.float64),
        prompt_tokens=np.array([sum(n for _, n in row["prompt"]) for row in requests]),
        output_tokens=np.array([row["output"] for row in requests]),
        priority=np.array([row["priority"] for row in requests]),
        block_ids=np.array(blocks, dtype=np.int64),
        block_starts=np.array(starts, dtype=np.int64),
        accepted=np.array([count for row in yields for count in row], dtype=np.int64),
        accepted_starts=np.cumsum([0, *(len(row) for row in yields)]),
    )


def as_recorded(steps: list[TracedStep], names: list[str]) -> list[Any]:
    """A trace in the words of the recorder, which leaves out steps that schedule nothing."""
    return [
        [
            round(step.start_s),
            {names[index]: count for index, count in step.scheduled.items()},
            sorted(names[index] for index in step.preempted),
            {names[index]: count for index, count in step.cached.items() if count},
            step.used_blocks,
        ]
        for step in steps
        if step.scheduled
    ]


@pytest.mark.parametrize("name", CASES)
def test_every_step_is_vllms_own(name: str) -> None:
    """Scheduled tokens, preemptions, cached prefixes and used blocks, at every step."""
    trace = TRACES[name]
    requests = load(trace["requests"], trace["settings"])
    tables = STEP.tables(LIMITS)

    mine = as_recorded(
        step_trace(requests, settings(trace["settings"]), tables),
        [row["id"] for row in trace["requests"]],
    )

    for ours, theirs in zip(mine, trace["steps"], strict=False):
        assert ours == theirs
    assert len(mine) == len(trace["steps"])


@pytest.mark.parametrize("name", CASES)
def test_the_outcome_agrees_with_the_steps(name: str) -> None:
    """Tokens, preemptions and steps of the fast path are those that vLLM scheduled."""
    trace = TRACES[name]
    requests = load(trace["requests"], trace["settings"])

    outcome = simulate(requests, settings(trace["settings"]), STEP.tables(LIMITS))

    busy = outcome.step_tokens > 0
    assert outcome.step_tokens[busy].tolist() == [sum(step[1].values()) for step in trace["steps"]]
    assert outcome.used_blocks[busy].tolist() == [step[4] for step in trace["steps"]]
    assert int(outcome.preemptions.sum()) == sum(len(step[2]) for step in trace["steps"])


def test_the_recorded_cases_are_the_written_ones() -> None:
    """A case that is changed without recording it again proves nothing."""
    written = {case["name"]: case for cases in FILES.values() for case in cases}

    assert sum(len(cases) for cases in FILES.values()) == len(written) == len(TRACES)
    for name, trace in TRACES.items():
        assert {key: trace[key] for key in ("name", "settings", "requests")} == written[name]


@pytest.mark.engine
def test_the_installed_scheduler_still_does_so(engine_python: str) -> None:
    """After an upgrade of vLLM: record again (``python -m tests.golden.scheduler.record``)."""
    command = [engine_python, "-m", "tests.golden.scheduler.record", "--check", "--only", *RENEWED]
    environment = {**engine_environment(), "HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment
    )

    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout.splitlines()[-1])["changed"] == []
