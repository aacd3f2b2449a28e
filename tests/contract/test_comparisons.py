"""What `make measure-checks` does on the real engine, in small on the planted one over sockets."""

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import psutil
import pytest

from advisor.measurement.protocol.pairs import Change, compare
from advisor.serving import Levers, ServingConfig
from probes.vllm.engine import RunningEngine
from probes.vllm.processes import find_engines
from probes.vllm.server import start_engine
from tests.fakes.engines import planted_plan
from tests.measure.arms import Bench
from tests.measure.contenders import Load
from tests.measure.prompts import prompts
from tests.measure.slowdown import slowed

pytestmark = pytest.mark.processes

# A planted engine mostly sleeps, and a pause that falls into a sleep costs nothing: it is slowed
# down by less than the share, unlike one that computes.
SHARE = 0.5
# A prompt of about 300 words takes 15 steps' time unless it is in the cache.
TRUTH = {"base_step_s": 0.01, "token_s": 0.0005, "knee_tokens": 4096, "vocab_size": 32000}
NOBODY = 2**22 + 1  # above every process id of Linux
LONG = Load(prompts=prompts(8, 1600), concurrency=4, tokens=16)
SHORT = Load(prompts=prompts(8, 100), concurrency=4, tokens=24)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[RunningEngine]:
    config = ServingConfig(levers=Levers(enable_prefix_caching=True))
    with start_engine(planted_plan(tmp_path, TRUTH, config)) as running:
        yield running


@pytest.mark.long
def test_a_planted_slowdown_is_told_as_hurts(engine: RunningEngine) -> None:
    """An engine that stands still for half of the time is slower, through the protocol."""
    bench = Bench(engine=engine, load=SHORT)
    pids = [found.pid for found in find_engines({engine.token})]

    def slow() -> AbstractContextManager[None]:
        return slowed(pids, SHARE)

    found = compare([bench.round(slow).change for _ in range(3)])

    assert found.change is Change.HURTS
    assert found.gain.value < 0.85


def test_only_the_reset_keeps_a_second_run_from_being_faster(engine: RunningEngine) -> None:
    """The same requests again: with a filled prefix cache they are faster, after a reset not."""
    bench = Bench(engine=engine, load=LONG)
    first, again, warm = bench.throughput(), bench.throughput(), bench.throughput(resets=False)

    assert again / first < 1.15
    assert warm / again > 1.3


def fail_inside(process: psutil.Process) -> set[str]:
    """Watch a slowed process for a second, then break off."""
    seen: set[str] = set()
    with contextlib.suppress(RuntimeError), slowed([process.pid, NOBODY], SHARE):
        end_s = time.monotonic() + 1.0
        while time.monotonic() < end_s:
            seen.add(process.status())
        raise RuntimeError("inside")
    return seen


def test_a_slowdown_leaves_no_process_standing_still() -> None:
    """Whatever happens inside, all processes run afterwards; one that has ended does no harm."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as sleeper:
        process = psutil.Process(sleeper.pid)
        during, after = fail_inside(process), process.status()
        sleeper.kill()

    assert psutil.STATUS_STOPPED in during
    assert after != psutil.STATUS_STOPPED
