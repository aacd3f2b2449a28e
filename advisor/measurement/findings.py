"""What the loads of one measurement say together, beside the loads themselves."""

from dataclasses import dataclass, field

from advisor.measurement.capacity import Capacity, Tried
from advisor.measurement.memory import MemoryBreakdown, PreemptionOnset
from advisor.measurement.saturation import Saturation
from advisor.measurement.steps import StepTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """`tried` are the loads that the search for the capacity rests on, in the order of measuring.

    `capacity` is the largest load that keeps the limits, None where none were given or the search
    did not end. `saturation` is the knee of a closed ladder, None below three levels. `onset` is
    where preemptions begin in a closed ladder whose counters are open. Of an engine of ours also:
    where its memory went, how long its steps take, and how long it took to start, with its phases.
    """

    capacity: Capacity | None = None
    tried: tuple[Tried, ...] = ()
    saturation: Saturation | None = None
    onset: PreemptionOnset | None = None
    memory: MemoryBreakdown | None = None
    steps: StepTable | None = None
    start_s: float | None = None
    start_phases: tuple[tuple[str, float], ...] = field(default=())
