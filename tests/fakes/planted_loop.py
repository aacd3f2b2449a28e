"""A machine in virtual time: what it costs, what it accepts, and the loops that load it.

Its step time is a smooth maximum of a fixed part and a power of the tokens, which is no form that
the recommender fits. Nothing in `advisor` imports it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from advisor.measurement.records import Outcome, RequestRecord
from advisor.serving import ServingConfig

DEFAULT_SLOTS = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRequest:
    """One request of the world's traffic."""

    label: str
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Planted truth. A step of n decoded or verified and p prompt tokens takes

    ``factor * ((fixed^3 + (token * n)^3)^(1/3) + prompt * p^0.95)`` seconds, times noise, where the
    factor is that of the dtype times, with quantized weights, `quantized_factor`.
    `shared` is the share of prompt tokens that a prefix cache serves; `acceptance` is the chance
    per class that a draft token is accepted after those before it. `kv_tokens` limits the tokens
    of all running requests, `client_slots` what a slow client passes on at once of all that it
    claims to be in flight. `flips` is the share of tokens that quantized weights change,
    `longest_answer` how long the long answers of the gangs' traffic are; the others have 8 tokens.
    """

    fixed_s: float = 0.020
    token_s: float = 0.0011
    prompt_s: float = 0.0006
    dtype_factor: Mapping[str, float] = field(default_factory=lambda: {"float32": 1.6})
    quantized_factor: float = 0.75
    flips: float = 0.02
    shared: float = 0.6
    acceptance: Mapping[str, float] = field(default_factory=lambda: {"copy": 0.8, "prose": 0.0})
    draft_s: float = 0.0004
    start_sd: float = 0.008
    point_sd: float = 0.006
    start_s: float = 30.0
    kv_tokens: int | None = None
    client_slots: int | None = None
    longest_answer: int = 120
    held_out: bool = True
    failing: frozenset[str] = frozenset()
    disturbed: frozenset[str] = frozenset()

    def step_s(self, *, decoded: float, prompt: float, config: ServingConfig) -> float:
        """Seconds of one step."""
        decode = math.cbrt(math.pow(self.fixed_s, 3) + math.pow(self.token_s * decoded, 3))
        levers = config.levers
        drafting = self.draft_s if levers.speculative_config is not None else 0.0
        factor = self.dtype_factor.get(levers.dtype or "auto", 1.0)
        if levers.quantization is not None:
            factor *= self.quantized_factor
        return factor * (decode + drafting + self.prompt_s * math.pow(prompt, 0.95))


def requests(count: int = 48, seed: int = 0) -> tuple[PlannedRequest, ...]:
    """A mixed sample, half copying and half prose, shuffled by `seed`."""
    rng = np.random.default_rng(seed)
    labels = ["copy" if index % 2 else "prose" for index in range(count)]
    rng.shuffle(labels)
    return tuple(
        PlannedRequest(
            label=label,
            prompt_tokens=int(rng.integers(30, 200)),
            output_tokens=int(rng.integers(6, 30)),
        )
        for label in labels
    )


def spread_requests(
    count: int = 48, *, longest: int = 120, seed: int = 2
) -> tuple[PlannedRequest, ...]:
    """Requests of which a quarter, anywhere among them, answers at length."""
    rng = np.random.default_rng(seed)
    outputs = [longest if index % 4 == 0 else 8 for index in range(count)]
    rng.shuffle(outputs)
    return tuple(
        PlannedRequest(label="prose", prompt_tokens=40, output_tokens=length) for length in outputs
    )


@dataclass(slots=True)
class _Running:
    request: PlannedRequest
    index: int
    sent_s: float
    left: int
    frames_s: list[float] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        """Tokens that it may come to hold in the cache."""
        return self.request.prompt_tokens + self.request.output_tokens


@dataclass(slots=True)
class Loop:
    """One load in virtual time on one started engine: a closed loop, or gangs."""

    world: World
    config: ServingConfig
    rng: np.random.Generator
    speed: float
    now_s: float = 0.0
    steps: int = 0
    drafts: int = 0
    accepted: int = 0
    peak_running: int = 0
    peak_waiting: int = 0
    peak_tokens: int = 0
    positions: list[int] = field(default_factory=list)

    def run(
        self, traffic: tuple[PlannedRequest, ...], concurrency: int, *, gangs: bool = False
    ) -> list[RequestRecord]:
        """Serve all of `traffic` with so many in flight, first come first served.

        As gangs the next `concurrency` requests are sent when all of the last have ended.
        """
        coming = list(enumerate(traffic))[::-1]
        waiting: list[_Running] = []
        running: list[_Running] = []
        records: list[RequestRecord] = []
        while coming or waiting or running:
            free = concurrency - len(waiting) - len(running)
            if gangs and free < concurrency:
                free = 0
            for index, request in [coming.pop() for _ in range(min(free, len(coming)))]:
                waiting.append(_Running(request, index, self.now_s, request.output_tokens))
            new = self._admitted(waiting, running)
            waiting = waiting[len(new) :]
            self._watch(waiting, [*running, *new])
            self._step(running, new)
            running += new
            records += [self._record(item) for item in running if item.left <= 0]
            running = [item for item in running if item.left > 0]
        return records

    def _admitted(self, waiting: list[_Running], running: list[_Running]) -> list[_Running]:
        """The first of the waiting that slots and cache have room for, at least one if idle."""
        slots = min(
            self.config.levers.max_num_seqs or DEFAULT_SLOTS,
            self.world.client_slots or DEFAULT_SLOTS,
        )
        space = self.world.kv_tokens or math.inf
        used = sum(item.tokens for item in running)
        admitted: list[_Running] = []
        for item in waiting[: max(0, slots - len(running))]:
            used += item.tokens
            if used > space and (running or admitted):
                break
            admitted.append(item)
        return admitted

    def _watch(self, waiting: list[_Running], running: list[_Running]) -> None:
        """What the engine sees: what a slow client holds back does not wait there."""
        if self.world.client_slots is not None:
            waiting = []
        self.peak_running = max(self.peak_running, len(running))
        self.peak_waiting = max(self.peak_waiting, len(waiting))
        self.peak_tokens = max(self.peak_tokens, sum(item.tokens for item in running))

    def _step(self, decoding: list[_Running], new: list[_Running]) -> None:
        speculation = self.config.levers.speculative_config
        length = speculation.num_speculative_tokens if speculation else 0
        caching = self.config.levers.enable_prefix_caching is not False
        share = self.world.shared if caching else 0.0
        prompt = sum(item.request.prompt_tokens for item in new) * (1 - share)
        decoded = len(decoding) * (1 + length) + len(new)
        duration = self.world.step_s(decoded=decoded, prompt=prompt, config=self.config)
        self.now_s += duration * self.speed
        self.steps += 1
        for item in decoding:
            item.left -= 1 + self._accept(item.request, length)
            item.frames_s.append(self.now_s)
        for item in new:
            item.left -= 1
            item.frames_s.append(self.now_s)

    def _accept(self, request: PlannedRequest, length: int) -> int:
        if not length:
            return 0
        self.positions = self.positions or [0] * length
        self.drafts += 1
        taken = 0
        while taken < length and self.rng.random() < self.world.acceptance[request.label]:
            self.positions[taken] += 1
            taken += 1
        self.accepted += taken
        return taken

    def _record(self, item: _Running) -> RequestRecord:
        return RequestRecord(
            request_id=str(item.index),
            label=item.request.label,
            outcome=Outcome.OK,
            intended_s=item.sent_s,
            sent_s=item.sent_s,
            end_s=self.now_s,
            first_token_s=item.frames_s[0],
            last_token_s=item.frames_s[-1],
            prompt_tokens=item.request.prompt_tokens,
            output_tokens=item.request.output_tokens,
            finish_reason="length",
            frame_times_s=tuple(item.frames_s),
        )
