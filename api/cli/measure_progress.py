"""What commands that make loads show and keep meanwhile."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from advisor.errors import InvalidInput
from advisor.measurement.records import LoopKind
from api.cli.measured_text import level_text
from api.codec import json_text, read
from api.measuring import MeasureProgress, Report


def earlier_report(out: Path | None, kind: type[Report]) -> Report | None:
    """What an earlier run left there; `InvalidInput` for a file that is something else."""
    if out is None or not out.exists():
        return None
    try:
        return read(out.read_bytes(), kind)
    except ValidationError:
        raise InvalidInput(
            "--out", f"{out.name} exists and is no report of ours: name another file"
        ) from None


def keeper(out: Path | None) -> Callable[[Report], None]:
    """Writes the report beside its place and moves it there: a cut one is never left."""
    if out is None:
        return lambda _report: None

    place = out

    def keep(report: Report) -> None:
        beside = place.with_name(place.name + ".part")
        beside.write_text(json_text(report) + "\n", encoding="utf-8")
        beside.replace(place)

    return keep


@dataclass
class _Shown:
    """Two bars on standard error: what is measured now, and how much of the budget is spent."""

    bars: Progress
    kind: LoopKind
    now: TaskID
    budget: TaskID

    def tell(self, progress: MeasureProgress) -> None:
        """Show it."""
        self.bars.update(
            self.now,
            description=self._text(progress),
            completed=progress.done,
            total=progress.total or None,
        )
        if progress.budget_s:
            left_s = max(0.0, progress.budget_s - progress.spent_s)
            self.bars.update(
                self.budget,
                visible=True,
                description=f"budget, at most {left_s:.0f} s left",
                completed=min(progress.spent_s, progress.budget_s),
                total=progress.budget_s,
            )

    def _text(self, progress: MeasureProgress) -> str:
        if progress.level is None:
            return progress.phase
        level = level_text(progress.level, self.kind)
        what = f"{level} in flight" if self.kind is LoopKind.CLOSED else f"rate {level}"
        side = f"pair {progress.repeat}, {progress.arm}" if progress.arm else ""
        return f"{what}, {side or f'load {progress.repeat}'}"


@contextmanager
def bars_of(kind: LoopKind, *, quiet: bool) -> Iterator[Callable[[MeasureProgress], None]]:
    """Bars while the work lasts; none when `quiet` or when nobody watches."""
    if quiet:
        yield lambda _progress: None
        return
    shown = (TextColumn("{task.description:<28}"), BarColumn(), TimeElapsedColumn())
    with Progress(*shown, console=Console(stderr=True), transient=True) as bars:
        now = bars.add_task("starting", total=None)
        budget = bars.add_task("budget", total=None, visible=False)
        yield _Shown(bars=bars, kind=kind, now=now, budget=budget).tell
