"""`python -m tests.measure [PART ...]`: measuring, checked on the real engine.

Parts: sockets, cycles, clients, comparisons, prefix, memory; all without an argument. Those that
load an engine share one start. Writes `build/measure.json` and `build/measure.md` and exits 1 when
a row is not ok; a part that fails has rows without a value that say why, and the others go on.
"""

import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from probes.vllm.engine import RunningEngine
from probes.vllm.server import start_engine
from tests.bench.figures import Figure, write_figures
from tests.measure.clients import client_figures
from tests.measure.comparisons import comparison_figures
from tests.measure.cycles import cycle_figures
from tests.measure.engine import Installed, engine_plan, installed
from tests.measure.memory import memory_figures
from tests.measure.prefix import prefix_figures
from tests.measure.progress import Say, teller
from tests.measure.rows import unmeasured
from tests.measure.sockets import socket_figures

ROOT = Path(__file__).parents[2]
RESULT = ROOT / "build" / "measure.json"
TITLE = "Measure"


@dataclass(kw_only=True)
class Workbench:
    """What parts share: the installation, one running engine, a folder; each when first asked for.

    As the engine is started once, so it is stopped once: by `stop`, or at the end of `held`.
    """

    folder: Path
    began_s: float
    held: ExitStack
    _found: Installed | None = field(default=None)
    _engine: RunningEngine | None = field(default=None)

    @property
    def found(self) -> Installed:
        """The installed engine and the demo model."""
        if self._found is None:
            self._found = installed(self.folder)
        return self._found

    @property
    def engine(self) -> RunningEngine:
        """The shared engine."""
        if self._engine is None:
            say = teller("engine", self.began_s)
            say("starting")
            plan = engine_plan(self.found, self.folder / "engine.log")
            self._engine = self.held.enter_context(start_engine(plan))
            say("serving")
        return self._engine

    def stop(self) -> None:
        """End the shared engine, if it runs."""
        self.held.close()
        self._engine = None


CLIENT_ROWS = ("ttft_error_at_1", "tpot_error", "throughput_error", "stub_error")
# A part: what it does with the bench, in lines that it may say.
Run = Callable[[Workbench, Say], Sequence[Figure]]


def _sockets(bench: Workbench, say: Say) -> Sequence[Figure]:
    return socket_figures()


def _clients(bench: Workbench, say: Say) -> Sequence[Figure]:
    return client_figures(bench.engine, bench.found, folder=bench.folder, say=say)


def _comparisons(bench: Workbench, say: Say) -> Sequence[Figure]:
    return comparison_figures(bench.engine, say)


def _prefix(bench: Workbench, say: Say) -> Sequence[Figure]:
    return prefix_figures(bench.engine, say)


def _memory(bench: Workbench, say: Say) -> Sequence[Figure]:
    return memory_figures(bench.engine, bench.found.model)


def _cycles(bench: Workbench, say: Say) -> Sequence[Figure]:
    bench.stop()  # it starts thirty engines of its own
    return cycle_figures(bench.found, bench.folder, say)


# In this order; `cycles` last, as it ends the shared engine. With the rows that each must yield.
PARTS: Mapping[str, tuple[Run, tuple[str, ...]]] = {
    "sockets": (_sockets, ("planted_coverage_sockets",)),
    "clients": (
        _clients,
        tuple(
            f"{client}_{row}" for client in ("vllm_bench", "second_client") for row in CLIENT_ROWS
        ),
    ),
    "comparisons": (_comparisons, ("no_change_false_verdicts", "slowdown_found")),
    "prefix": (_prefix, ("second_run_ratio_off",)),
    "memory": (_memory, ("memory_figures_error",)),
    "cycles": (_cycles, ("kill_cycles", "kill_cycles_left_behind")),
}


def run_part(
    name: str, run: Run, rows: Sequence[str], *, bench: Workbench, say: Say
) -> list[Figure]:
    """The figures of one part; each of its `rows` is there, without a value where it failed."""
    say("begins")
    try:
        found = list(run(bench, say))
        reason = "the part did not yield it"
    except Exception as error:  # noqa: BLE001 - the other parts go on, the row says why
        traceback.print_exc()
        found, reason = [], f"{name} failed: {type(error).__name__}: {error}"
    for figure in found:
        say(f"{figure.name}: {figure.value} {figure.unit}")
    there = {figure.name for figure in found}
    return [*found, *unmeasured([name for name in rows if name not in there], reason)]


def measured(names: Sequence[str]) -> list[Figure]:
    """The figures of these parts; all of them together also say how long it took."""
    began_s = time.monotonic()
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="rooftune-measure-") as folder, ExitStack() as held:
        bench = Workbench(folder=Path(folder), began_s=began_s, held=held)
        for name in names:
            run, rows = PARTS[name]
            figures += run_part(name, run, rows, bench=bench, say=teller(name, began_s))
    if set(names) == set(PARTS):
        figures.append(
            Figure(
                name="measure_checks_s",
                value=time.monotonic() - began_s,
                unit="s",
                better="lower",
                detail="all parts, installation not counted",
            )
        )
    return figures


def main() -> int:
    """0 when every figure meets its target, 1 otherwise, 2 for an unknown part."""
    names = sys.argv[1:] or list(PARTS)
    unknown = set(names) - set(PARTS)
    if unknown:
        sys.stderr.write(
            f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}\n"
        )
        return 2
    return write_figures(measured(names), RESULT, TITLE)


if __name__ == "__main__":
    sys.exit(main())
