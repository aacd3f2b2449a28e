"""The step-time table of an engine of ours, verification with a pruned draft included."""

import json
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from advisor.errors import Unavailable
from advisor.measurement.asked import Order, OwnEngine
from advisor.measurement.records import LoopKind
from advisor.measurement.step_plan import StepRun, step_plan
from advisor.measurement.steps import StepTable, StepTiming, step_table
from advisor.serving import DraftModelSpeculation, EngineFacts
from probes.engines import Interpreter, run_script
from probes.measure.own import OwnServer
from probes.measure.own_start import own_server
from probes.measure.step_runs import TimedRuns, time_runs
from probes.settings import engine_environment

REPEATS = 2
# A draft of a fifth of the layers: it costs what a small draft costs and is hardly ever right.
LAYERS_SHARE = 5
PRUNE_TIMEOUT_S = 300.0
DEFAULT_BATCH, DEFAULT_LENGTH, DEFAULT_BATCHED = 16, 2048, 2048

Told = Callable[[str, int, int], None]


@dataclass
class StepWork:
    """Collects the timings of an engine and of its starts with drafts. `told` hears of progress."""

    order: Order
    vocab_size: int
    cancelled: threading.Event
    told: Told

    def __post_init__(self) -> None:
        self._timings: list[StepTiming] = []
        self._budget = DEFAULT_BATCHED
        self._runs: tuple[StepRun, ...] = ()
        self.remarks: list[str] = []

    def base(self, server: OwnServer) -> None:
        """Time the runs without drafts on the engine that was measured."""
        self._runs = self._planned(server.facts)
        self._budget = server.facts.max_num_batched_tokens or DEFAULT_BATCHED
        runs = [run for run in self._runs if not run.draft_tokens]
        self._timings += self._timed(server, runs, "step times").timings

    def verification(self, asked: OwnEngine) -> None:
        """Time the runs with drafts, one start of the engine for each draft length."""
        lengths = sorted({run.draft_tokens for run in self._runs} - {0})
        if not lengths:
            return
        with _pruned(asked, self.cancelled) as draft:
            for length in lengths:
                self._verify(asked, draft, length)

    def table(self) -> StepTable:
        """What the timings say."""
        return step_table(
            self._timings, max_num_batched_tokens=self._budget, seed=self.order.plan.seed
        )

    def _verify(self, asked: OwnEngine, draft: Path, length: int) -> None:
        setting = DraftModelSpeculation(model=str(draft), num_speculative_tokens=length)
        config = asked.config.changed({"speculative_config": setting})
        runs = [run for run in self._runs if run.draft_tokens == length]
        phase = f"verifying {length} drafted"
        with own_server(
            replace(asked, config=config),
            cancelled=self.cancelled,
            on_progress=lambda at: self.told(phase, int(at.elapsed_s), int(at.limit_s)),
        ) as server:
            timed = self._timed(server, runs, phase)
        self._timings += timed.timings
        if timed.flaw is not None:
            self.remarks.append(f"with {length} drafted tokens {timed.flaw}")

    def _planned(self, facts: EngineFacts) -> tuple[StepRun, ...]:
        """Batches up to the largest load that was asked for, within what the engine takes."""
        plan = self.order.plan
        wanted = int(max(plan.levels)) if plan.kind is LoopKind.CLOSED else DEFAULT_BATCH
        return step_plan(
            min(wanted, facts.max_num_seqs or wanted),
            facts.max_model_len or DEFAULT_LENGTH,
            kv_cache_tokens=facts.kv_cache_tokens,
            draft_tokens=self.order.verify,
        )

    def _timed(self, server: OwnServer, runs: list[StepRun], phase: str) -> TimedRuns:
        return time_runs(
            server,
            runs,
            vocab_size=self.vocab_size,
            repeats=REPEATS,
            seed=self.order.plan.seed,
            cancelled=self.cancelled,
            told=lambda done, total: self.told(phase, done, total),
        )


@contextmanager
def _pruned(asked: OwnEngine, cancelled: threading.Event) -> Iterator[Path]:
    """A draft of the first layers of the engine's own model, while the block lasts."""
    model = Path(asked.model_folder)
    layers = _layers(model)
    launcher = None if asked.launcher is None else Path(asked.launcher)
    interpreter = Interpreter(python=Path(asked.python), launcher=launcher)
    with tempfile.TemporaryDirectory(prefix="rooftune-draft-") as place:
        draft = Path(place) / "draft"
        run_script(
            interpreter.script("pruned_draft", str(model), str(draft), "--layers", str(layers)),
            env=engine_environment(),
            timeout_s=PRUNE_TIMEOUT_S,
            stopped=cancelled.is_set,
        )
        yield draft


def _layers(model: Path) -> int:
    try:
        config = json.loads((model / "config.json").read_text(encoding="utf-8"))
        return max(1, int(config["num_hidden_layers"]) // LAYERS_SHARE)
    except (OSError, ValueError, KeyError, TypeError):
        raise Unavailable(
            "no draft can be made of the model", "its config.json must state num_hidden_layers"
        ) from None
