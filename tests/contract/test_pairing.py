"""Pairs of loads on planted engines: their order, their requests, going on, what they find."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advisor.measurement.asked import MeasurePlan
from advisor.measurement.comparison import PairedLoad, compared_levels
from advisor.measurement.protocol.pairs import Arm, Change
from advisor.measurement.records import LoopKind
from advisor.serving import ServingConfig
from advisor.traffic.formats.options import ReadOptions
from probes.measure.own import OwnServer
from probes.measure.pairing import OpenSide, Paired, Pairing
from probes.measure.server import Server
from probes.measure.workload import Workload, read_workload
from probes.vllm.server import start_engine
from tests.contract.test_measure_driver import attached, written
from tests.fakes.engines import planted_plan

pytestmark = pytest.mark.processes

STEP_S = 0.03
PLAN = MeasurePlan(kind=LoopKind.CLOSED, levels=(1, 4), requests=8, budget_s=120.0)


@pytest.fixture
def workload(tmp_path: Path) -> Workload:
    return read_workload(written(tmp_path, 24, tokens=6), ReadOptions())


@contextmanager
def engines(folder: Path, steps_s: Sequence[float]) -> Iterator[list[Server]]:
    """Planted engines of these step times, seen from outside."""
    with ExitStack() as stack:
        servers: list[Server] = []
        for number, step_s in enumerate(steps_s):
            place = folder / f"engine-{number}"
            place.mkdir()
            truth = {"base_step_s": step_s, "token_s": 1e-6, "knee_tokens": 4096}
            plan = planted_plan(place, truth, ServingConfig())
            servers.append(attached(stack.enter_context(start_engine(plan))))
        yield servers


class Sides:
    """Opens servers that run and notes in which order they were opened."""

    def __init__(self, a: Server, b: Server) -> None:
        self.servers = {Arm.A: a, Arm.B: b}
        self.opened: list[Arm] = []

    def __getitem__(self, arm: Arm) -> OpenSide:
        @contextmanager
        def open_side() -> Iterator[Server]:
            self.opened.append(arm)
            yield self.servers[arm]

        return open_side


def pairing(sides: Sides, workload: Workload, pairs: int, **changes: Any) -> Pairing:
    made = Pairing(
        sides={arm: sides[arm] for arm in Arm},
        workload=workload,
        plan=PLAN,
        pairs=pairs,
        repeats=True,
        max_model_len=None,
        progress=lambda _progress: None,
        taken=lambda _paired: None,
        cancelled=threading.Event(),
    )
    return replace(made, **changes)


def test_a_server_of_twice_the_step_time_is_found_to_hurt(
    tmp_path: Path, workload: Workload
) -> None:
    """Sides take turns, both loads of a pair send the same, and the planted ratio comes out."""
    with engines(tmp_path, [STEP_S, 2 * STEP_S]) as (a, b):
        sides = Sides(a, b)
        paired = pairing(sides, workload, 3).run()
    # On a busy machine loads are late and marked so; what is planted is far larger.
    counted = [replace(item, point=replace(item.point, usable=True)) for item in paired.loads]
    found = compared_levels(counted, source=a.rank.source, caching_differs=True)

    assert paired.complete
    assert "".join(sides.opened) == "ABBAAB"
    for pair in (1, 2, 3):
        for level in PLAN.levels:
            here = [item for item in paired.loads if (item.pair, item.level) == (pair, level)]
            assert len({item.point.subset_digest for item in here}) == 1
            assert {item.arm for item in here} == set(Arm)
    for at_level in found:
        assert at_level.pairs == 3, at_level.flaws
        slower = at_level.figures["tpot_s p50"]
        assert slower.gain.value == pytest.approx(0.5, rel=0.25)
        assert slower.change is Change.HURTS


def test_it_goes_on_with_the_pairs_that_are_missing(tmp_path: Path, workload: Workload) -> None:
    """A cancelled one keeps whole pairs only; the next run makes the others."""
    cancelled = threading.Event()
    kept: list[PairedLoad] = []

    def taken(paired: Paired) -> None:
        kept[:] = paired.loads
        cancelled.set()

    with engines(tmp_path, [STEP_S, STEP_S]) as (a, b):
        first = pairing(Sides(a, b), workload, 3, taken=taken, cancelled=cancelled).run()
        sides = Sides(a, b)
        second = pairing(sides, workload, 3, loads=list(first.loads)).run()

    assert (first.complete, list(first.loads)) == (False, kept)
    assert {item.pair for item in first.loads} == {1}
    assert "interrupted" in first.remarks[-1]
    assert second.complete
    assert second.loads[: len(kept)] == tuple(kept)
    assert sorted({item.pair for item in second.loads}) == [1, 2, 3]
    assert "".join(sides.opened) == "BAAB"


def test_the_budget_ends_it_between_two_pairs(tmp_path: Path, workload: Workload) -> None:
    """What does not fit is not begun, and the remedy is said."""
    plan = replace(PLAN, budget_s=0.5, levels=(4,))
    with engines(tmp_path, [STEP_S, STEP_S]) as (a, b):
        paired = pairing(Sides(a, b), workload, 4, plan=plan).run()

    assert not paired.complete
    assert {item.pair for item in paired.loads} == {1}
    assert "--budget" in paired.remarks[-1]


def test_an_engine_of_ours_is_opened_for_every_load(tmp_path: Path, workload: Workload) -> None:
    """Each start warms up of its own; the prefix cache is emptied before the load."""
    started: list[str] = []

    @contextmanager
    def fresh() -> Iterator[Server]:
        place = tmp_path / f"start-{len(started)}"
        place.mkdir()
        truth = {"base_step_s": STEP_S, "token_s": 1e-6, "knee_tokens": 4096}
        with start_engine(planted_plan(place, truth, ServingConfig())) as engine:
            started.append(engine.token)
            yield OwnServer(engine=engine)

    phases: list[str] = []
    made = pairing(Sides(*[None] * 2), workload, 2)  # type: ignore[arg-type]
    paired = replace(
        made,
        sides=dict.fromkeys(Arm, fresh),
        plan=replace(PLAN, levels=(2,)),
        progress=lambda progress: phases.append(progress.phase),
    ).run()

    assert paired.complete
    assert len(set(started)) == 4
    assert sum(a != b == "warming up" for a, b in zip(["", *phases], phases, strict=False)) == 4
