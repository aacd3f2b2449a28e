"""Quality passes on the planted engine: what a changed arithmetic shows, and how passes end."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advisor.errors import EngineFailed
from advisor.measurement.records import QualityPass
from advisor.serving import FunctionalSettings, Levers, ServingConfig
from advisor.states import FailureKind
from probes.load.plan import ReplayRule
from probes.quality import QualityGivenUp, QualityWork, quality_pass
from probes.samples import Sample
from probes.vllm.engine import RunningEngine
from probes.vllm.server import start_engine
from tests.fakes.engines import chat_request, planted_plan

pytestmark = pytest.mark.processes
COUNT = 12
TRUTH: dict[str, Any] = {
    "base_step_s": 0.001,
    "mean_answer_tokens": 30,
    "flip_rates": {"float32": 0.1},
}
BASELINE = ServingConfig(functional=FunctionalSettings(max_model_len=256))
CHANGED = replace(BASELINE, levers=Levers(dtype="float32"))


def work(*texts: str) -> QualityWork:
    """Prompts of up to twenty tokens of answer."""
    prompts = texts or tuple(f"Tell me about number {i}" for i in range(COUNT))
    requests = tuple(chat_request(i, text) for i, text in enumerate(prompts))
    return QualityWork(
        sample=Sample(
            workload_digest="w",
            requests=requests,
            output_tokens=(None,) * len(requests),
            rule=ReplayRule(cap_tokens=160, default_tokens=64, fixed=True),
        ).capped(20),
        passes=1,
        finished=(),
        reference=None,
    )


def passed(engine: RunningEngine, wanted: QualityWork) -> QualityPass:
    return quality_pass(
        engine, wanted, cancelled=threading.Event(), on_progress=lambda _done, _total: None
    )


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEngine]:
    """A planted engine with the baseline's arithmetic."""
    with start_engine(planted_plan(tmp_path_factory.mktemp("base"), TRUTH, BASELINE)) as running:
        yield running


def test_an_engine_agrees_with_itself(engine: RunningEngine) -> None:
    """Twice the same answers, and at every position what it said; progress ends at the total."""
    told: list[tuple[int, int]] = []
    first = quality_pass(
        engine,
        work(),
        cancelled=threading.Event(),
        on_progress=lambda done, total: told.append((done, total)),
    )
    second = passed(engine, replace(work(), finished=(first,)))

    assert second == first
    assert all(answer.forced == answer.greedy for answer in first.answers)
    assert told == [(done, COUNT) for done in range(1, COUNT + 1)]


def test_another_arithmetic_shows_at_the_rate_that_was_planted(
    engine: RunningEngine, tmp_path: Path
) -> None:
    """Forced to the baseline's answers a tenth of the positions differ, and greedily far more."""
    reference = passed(engine, work())
    with start_engine(planted_plan(tmp_path, TRUTH, CHANGED)) as changed:
        other = passed(changed, replace(work(), reference=reference))
    pairs = list(zip(reference.answers, other.answers, strict=True))
    differ = [
        mine != theirs
        for one, two in pairs
        for mine, theirs in zip(one.greedy, two.forced or (), strict=True)
    ]
    greedy = [
        mine != theirs
        for one, two in pairs
        for mine, theirs in zip(one.greedy, two.greedy, strict=True)
    ]

    assert 0.04 < sum(differ) / len(differ) < 0.18
    assert sum(greedy) > 2 * sum(differ)


def test_a_prompt_that_the_engine_refuses_is_left_out(engine: RunningEngine) -> None:
    """The others are answered all the same."""
    found = passed(engine, work("short", "far too long " * 200, "short too"))

    assert [answer.request_id for answer in found.answers] == ["r0", "r2"]
    with pytest.raises(QualityGivenUp, match="refused every prompt"):
        passed(engine, work("far too long " * 200))


def test_a_request_that_the_reference_lacks_is_not_forced(engine: RunningEngine) -> None:
    """There is nothing to hold it against."""
    reference = passed(engine, work("one"))
    other = passed(engine, replace(work("one", "two"), reference=reference))

    assert [answer.forced is None for answer in other.answers] == [False, True]


def test_a_cancelled_pass_ends_at_once(engine: RunningEngine) -> None:
    """As a cancelled load does; what was answered is dropped."""
    cancelled = threading.Event()
    with pytest.raises(EngineFailed) as caught:
        quality_pass(
            engine,
            work(),
            cancelled=cancelled,
            on_progress=lambda _done, _total: cancelled.set(),
        )

    assert caught.value.kind == FailureKind.CANCELLED


def test_an_engine_that_is_gone_gives_the_pass_up(tmp_path: Path) -> None:
    """By the name of the error only: its message could quote the request."""
    with start_engine(planted_plan(tmp_path, TRUTH, BASELINE)) as running:
        running.stop()
        with pytest.raises(QualityGivenUp) as caught:
            passed(running, work("a secret"))

    assert "secret" not in str(caught.value)
    assert "ConnectError" in str(caught.value)
