"""The measuring driver on the planted engine, as our own and as one that may not be touched."""

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.errors import InvalidInput, Unavailable, UnknownName
from advisor.measurement.asked import MeasurePlan, Salt
from advisor.measurement.capacity import Tried
from advisor.measurement.records import LoadPoint, LoopKind
from advisor.measurement.report import Rank
from advisor.measurement.slo import Slo
from advisor.serving import ServingConfig
from advisor.traffic.formats.options import ReadOptions
from probes.measure.attached import AttachedServer, address_of, attach
from probes.measure.driver import Driver, Listener, Measured
from probes.measure.loader import Progress
from probes.measure.own import OwnServer
from probes.measure.server import Server
from probes.measure.workload import Workload, read_workload
from probes.vllm.engine import RunningEngine
from probes.vllm.server import start_engine
from tests.fakes.engines import planted_plan

pytestmark = pytest.mark.processes

STEP_S = 0.01
TRUTH = {"base_step_s": STEP_S, "token_s": 1e-6, "knee_tokens": 4096, "beyond_knee_token_s": 0.0}
SHARED_PROMPT = " ".join(f"rule {i}" for i in range(40))


def written(folder: Path, count: int = 40, *, tokens: int = 8) -> Path:
    """A traffic file with text; half of the prompts begin alike."""
    file = folder / "traffic.jsonl"
    rows = (
        {
            "messages": [
                {
                    "role": "user",
                    "content": f"{SHARED_PROMPT if i % 2 else 'alone'} question {i} "
                    + " ".join(f"w{i}x{j}" for j in range(30)),
                }
            ],
            "output_tokens": tokens,
            "timestamp": 1_700_000_000 + 0.05 * i,
        }
        for i in range(count)
    )
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[RunningEngine]:
    """A planted engine that takes 10 ms a step, whatever is in it."""
    with start_engine(planted_plan(tmp_path, TRUTH, ServingConfig())) as started:
        yield started


@pytest.fixture
def workload(tmp_path: Path) -> Workload:
    """Forty requests of eight tokens."""
    return read_workload(written(tmp_path), ReadOptions())


def attached(engine: RunningEngine) -> AttachedServer:
    """The same engine, seen from outside."""
    return attach(address_of(engine.base_url), None)


PLAN = MeasurePlan(kind=LoopKind.CLOSED, levels=(1, 4), requests=16, most_repeats=2, budget_s=60.0)


class Heard:
    """What a listener was told."""

    def __init__(self) -> None:
        self.progress: list[Progress] = []
        self.loads: list[LoadPoint] = []
        self.cancelled = threading.Event()
        self.cancel_after: int | None = None

    def taken(self, load: LoadPoint, _tried: Tried | None) -> None:
        self.loads.append(load)
        if len(self.loads) == self.cancel_after:
            self.cancelled.set()

    def listener(self) -> Listener:
        return Listener(progress=self.progress.append, taken=self.taken)


def driven(
    server: Server, workload: Workload, plan: MeasurePlan = PLAN, heard: Heard | None = None
) -> Measured:
    """One measurement, whole."""
    told = heard or Heard()
    return Driver(
        server=server,
        workload=workload,
        plan=plan,
        listener=told.listener(),
        cancelled=told.cancelled,
    ).run()


def test_a_ladder_on_an_engine_of_ours_finds_the_planted_times(
    engine: RunningEngine, workload: Workload
) -> None:
    """A token takes a step, and four in flight get four times the tokens of one."""
    found = driven(OwnServer(engine=engine), workload, replace(PLAN, most_repeats=1))
    one, four = (
        next(load for load in found.loads if load.concurrency == level) for level in (1, 4)
    )

    assert found.complete
    assert one.tpot_s is not None
    assert 0.95 * STEP_S < one.tpot_s.p50 < 1.5 * STEP_S
    ratio = four.throughput_tokens_per_s.value / one.throughput_tokens_per_s.value
    assert 2.5 < ratio < 4.5
    assert [load.counters.known for load in found.loads] == [True] * len(found.loads)


def test_an_endpoint_is_measured_cold_without_being_reset(
    engine: RunningEngine, workload: Workload
) -> None:
    """Every load begins with another salt: only what its own requests share is a hit (S-10)."""
    found = driven(attached(engine), workload, replace(PLAN, levels=(2,)))
    shares = [load.prefix_hit_share or 0.0 for load in found.loads]

    assert len(shares) == 2
    assert all(0.1 < share < 0.6 for share in shares)


def test_without_a_salt_requests_that_come_again_are_marked(
    engine: RunningEngine, workload: Workload
) -> None:
    """Each load gets other requests while there are some; what was sent before is in the cache."""
    plan = replace(PLAN, levels=(2,), requests=20, most_repeats=3, precision=1e-6, salt=Salt.NONE)
    found = driven(attached(engine), workload, plan)
    marked = [any("sent before" in flaw for flaw in load.flaws) for load in found.loads]
    shares = [load.prefix_hit_share or 0.0 for load in found.loads]

    assert marked == [False, True, True]
    assert shares[0] < 0.6
    assert shares[2] > 0.8


def test_a_salt_in_the_prompt_keeps_loads_apart_on_any_server(
    engine: RunningEngine, workload: Workload
) -> None:
    """The first word differs from load to load and not within one."""
    found = driven(attached(engine), workload, replace(PLAN, levels=(2,), salt=Salt.PROMPT))
    shares = [load.prefix_hit_share or 0.0 for load in found.loads]

    assert len(shares) == 2
    assert all(0.1 < share < 0.6 for share in shares)


def test_an_open_loop_keeps_its_rate_and_the_search_answers_with_a_load_that_passed(
    tmp_path: Path, workload: Workload
) -> None:
    """The limits hold at every rate here, so the highest asked is the answer, and is at least.

    Steps are long, so that a busy machine's late timers do not matter.
    """
    plan = MeasurePlan(
        kind=LoopKind.OPEN,
        levels=(12.0, 24.0),
        requests=20,
        most_repeats=1,
        least_span_s=0.5,
        slo=Slo(e2e_s=20.0, attainment=0.8),
        budget_s=60.0,
    )
    truth = {**TRUTH, "base_step_s": 0.25}
    with start_engine(planted_plan(tmp_path, truth, ServingConfig())) as slow:
        found = driven(attached(slow), workload, plan)

    assert found.capacity is not None
    assert found.capacity.at_least
    assert found.capacity.load == pytest.approx(24.0)
    assert {load.open_loop.arrivals for load in found.loads if load.open_loop} == {"poisson"}


def test_what_was_measured_is_kept_when_it_is_interrupted_and_gone_on_with(
    engine: RunningEngine, workload: Workload
) -> None:
    """The loads of the first run are not made again."""
    heard = Heard()
    heard.cancel_after = 1
    server = OwnServer(engine=engine)
    first = driven(server, workload, heard=heard)
    again = Heard()
    second = Driver(
        server=server,
        workload=workload,
        plan=PLAN,
        listener=again.listener(),
        cancelled=again.cancelled,
        loads=list(first.loads),
    ).run()

    assert not first.complete
    assert len(first.loads) == 1
    assert "interrupted" in first.remarks[-1]
    assert second.loads[0] == first.loads[0]
    assert len(again.loads) == len(second.loads) - 1


def test_the_budget_ends_a_measurement_after_its_first_load(
    engine: RunningEngine, workload: Workload
) -> None:
    """Not complete, and it says what to do."""
    found = driven(OwnServer(engine=engine), workload, replace(PLAN, budget_s=0.001))

    assert len(found.loads) == 1
    assert not found.complete
    assert "--budget" in found.remarks[-1]


def test_work_for_others_marks_a_load_of_an_attached_server(
    engine: RunningEngine, workload: Workload
) -> None:
    """Its counters know of more tokens than we got."""
    others = threading.Thread(
        target=driven, args=(attached(engine), workload, replace(PLAN, levels=(4,), requests=40))
    )
    others.start()
    found = driven(attached(engine), workload, replace(PLAN, levels=(1,), most_repeats=1))
    others.join()

    assert not any(load.usable for load in found.loads)
    assert any("others" in flaw or "busy" in flaw for flaw in found.loads[0].flaws)


def test_a_server_is_known_by_its_model_its_engine_and_its_rank(engine: RunningEngine) -> None:
    """From /v1/models, /version and /metrics."""
    server = attached(engine)

    assert server.identity.model == engine.served_model_name
    assert server.identity.title is not None
    assert server.identity.title.startswith("vllm ")
    assert server.rank is Rank.CLIENT_SIDE
    assert server.has_counters
    with pytest.raises(UnknownName, match="other"):
        attach(server.address, "other")


def test_an_address_where_nothing_answers_is_said_with_a_remedy() -> None:
    """Before any load."""
    with pytest.raises(Unavailable, match="nothing answers"):
        attach(address_of("http://127.0.0.1:9"), None)
    with pytest.raises(InvalidInput):
        address_of("ftp://somewhere")
