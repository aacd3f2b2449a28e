"""How far a start has come, by what the engine's log holds, and how long each part took."""

from collections.abc import Callable
from dataclasses import dataclass, field

LAUNCHING, SERVING = "launching", "serving"
# The last line that is found names the phase that it begins. Loading ends with either of two lines,
# by the worker of a CPU or of a GPU; then the model is compiled and the memory profiled.
_BEGINNINGS = (
    ("Application startup complete", SERVING),
    ("init engine (profile, create kv cache", "opening"),
    ("KV cache size", "warming up"),
    ("Model loading took", "profiling"),
    ("Loading weights took", "profiling"),
    ("Starting to load model", "loading"),
)


def phase_of(log_text: str) -> str:
    """The phase that a log has reached."""
    return next((phase for line, phase in _BEGINNINGS if line in log_text), LAUNCHING)


@dataclass
class PhaseClock:
    """Notes when a start was first seen in each phase; times of one monotonic clock, in seconds.

    A phase that came and went between two looks is not noted: its time counts for the one before.
    """

    now: Callable[[], float]
    began_s: float = field(init=False)
    _seen: list[tuple[str, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.began_s = self.now()
        self._seen.append((LAUNCHING, self.began_s))

    @property
    def elapsed_s(self) -> float:
        """Since the start began."""
        return self.now() - self.began_s

    def look(self, log_text: str) -> str:
        """The phase now; noted if it is new."""
        phase = phase_of(log_text)
        if phase != self._seen[-1][0]:
            self._seen.append((phase, self.now()))
        return phase

    def durations(self, start_s: float) -> tuple[tuple[str, float], ...]:
        """Seconds of each phase up to `start_s` after the beginning, when the engine was ready.

        They add up to `start_s`; the phase of serving has no duration and is none of the start.
        """
        begins = [(name, at_s - self.began_s) for name, at_s in self._seen if name != SERVING]
        ends = [begin_s for _, begin_s in begins[1:]] + [start_s]
        return tuple(
            (name, end_s - begin_s) for (name, begin_s), end_s in zip(begins, ends, strict=True)
        )
