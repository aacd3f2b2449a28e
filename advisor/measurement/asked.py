"""What is to be measured of one server: its loads, how well, and for how long."""

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from advisor.errors import InvalidInput
from advisor.measurement.records import LoopKind
from advisor.measurement.slo import Slo
from advisor.serving import ServingConfig
from advisor.traffic.formats.options import ReadOptions

LEAST_PAIRS = 2
ARRIVALS = ("poisson", "gamma", "constant", "recorded")


class Salt(StrEnum):
    """How a load is kept from the prefix cache that an earlier load filled.

    A salt differs from load to load and is the same for all requests of a load, so that what the
    user's own requests share among themselves is still shared (case S-10). FIELD: vLLM's
    ``cache_salt``, which leaves the prompt as it is. PROMPT: a short word before the first
    message, which changes the prompt. NONE: nothing; requests that were sent before may hit the
    cache, and loads that repeat them are marked. AUTO: FIELD where the server is vLLM, else NONE.
    An engine of our own is reset between loads and needs none.
    """

    AUTO = "auto"
    FIELD = "field"
    PROMPT = "prompt"
    NONE = "none"


class Stop(StrEnum):
    """Where answers end. RECORDED: at the recorded length (timing). NATURAL: where they end."""

    RECORDED = "recorded"
    NATURAL = "natural"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurePlan:
    """The loads of one measurement.

    `levels` are requests in flight of a closed loop, or requests per second of an open one, in
    which `arrivals` says where send times come from (with "recorded" a level is a multiple of the
    recorded rate). `requests` is the usual number per load; an open load lasts `least_span_s` at
    least, as a queue needs time to grow. Loads are repeated until the half width of a level's
    interval is at most `precision` of its figure, `most_repeats` were made or `budget_s` is spent.
    With `slo` the largest level that keeps it is searched as well.
    """

    kind: LoopKind
    levels: tuple[float, ...]
    requests: int = 100
    arrivals: str = "poisson"
    cv: float | None = None
    slo: Slo | None = None
    precision: float = 0.05
    budget_s: float = 600.0
    most_repeats: int = 5
    least_span_s: float = 30.0
    seed: int = 0
    salt: Salt = Salt.AUTO
    stop: Stop = Stop.RECORDED
    cap_tokens: int = 2048
    default_tokens: int = 128

    def __post_init__(self) -> None:
        self._check_levels()
        if self.arrivals not in ARRIVALS:
            raise InvalidInput("arrivals", f"{self.arrivals!r} is none of {', '.join(ARRIVALS)}")
        if (self.arrivals == "gamma") != (self.cv is not None):
            raise InvalidInput("cv", "gamma arrivals need the variation of gaps, no others do")
        for name, least in (("requests", 1), ("most_repeats", 1), ("default_tokens", 1)):
            if getattr(self, name) < least:
                raise InvalidInput(name, f"{getattr(self, name)} is below {least}")
        if not 0 < self.precision < 1:
            raise InvalidInput("precision", f"{self.precision} is not between 0 and 1")
        if not 0 < self.budget_s < math.inf:
            raise InvalidInput("budget", f"{self.budget_s} is not a positive number of seconds")
        if self.default_tokens > self.cap_tokens:
            raise InvalidInput("default_tokens", f"is above the cap of {self.cap_tokens}")

    def _check_levels(self) -> None:
        if not self.levels:
            raise InvalidInput("levels", "there is no load to measure")
        for level in self.levels:
            if not 0 < level < math.inf:
                raise InvalidInput("levels", f"{level} is not a positive number")
            if self.kind is LoopKind.CLOSED and level != int(level):
                raise InvalidInput("levels", f"{level} requests cannot be in flight")


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A server that somebody runs; `model` None takes the only one that it serves."""

    url: str
    model: str | None = None
    api_key: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnEngine:
    """An engine to be started on this machine: its Python, a model's folder, its settings.

    A `launcher` file stands in for vLLM's scripts and server.
    """

    python: str
    model_folder: str
    config: ServingConfig = field(default_factory=ServingConfig)
    launcher: str | None = None


MeasuredServer: TypeAlias = Endpoint | OwnEngine


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What to measure, with which file of requests. `tokenizer` is a model folder to count by.

    Of an engine of ours with `steps` also the time of its steps, and with the draft lengths
    `verify` that of verifying so many drafted tokens.
    """

    plan: MeasurePlan
    server: MeasuredServer
    workload: str
    options: ReadOptions = field(default_factory=ReadOptions)
    tokenizer: str | None = None
    steps: bool = False
    verify: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if (self.steps or self.verify) and not isinstance(self.server, OwnEngine):
            raise InvalidInput("--steps", "needs an engine of its own: --engine")
        if any(length < 1 for length in self.verify):
            raise InvalidInput("--verify", "a draft has at least one token")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareOrder:
    """Two servers to compare by `pairs` of loads at each level of the plan, A B B A.

    Engines of our own are started anew for every load of a pair, so that starts are what the
    intervals are over; endpoints are taken as they run.
    """

    plan: MeasurePlan
    a: MeasuredServer
    b: MeasuredServer
    pairs: int
    workload: str
    options: ReadOptions = field(default_factory=ReadOptions)
    tokenizer: str | None = None

    def __post_init__(self) -> None:
        if self.pairs < LEAST_PAIRS:
            raise InvalidInput("--pairs", f"{self.pairs} is below {LEAST_PAIRS}: no spread is seen")
        if isinstance(self.a, OwnEngine) != isinstance(self.b, OwnEngine):
            raise InvalidInput("--engine", "both sides are endpoints, or both engines of ours")
        if self.plan.slo is not None:
            raise InvalidInput("--slo", "a comparison searches no capacity: use rooftune measure")
