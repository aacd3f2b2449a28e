"""A closed loop of equal requests, and what it shows from outside."""

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from advisor.errors import InvalidInput

Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedLoop:
    """`concurrency` requests in flight; a finished one is replaced at once.

    Lengths are uniform between `shortest` times the stated tokens and the stated tokens, as load
    generators with a range ratio draw them; 1 gives equal lengths. `cache_tokens` is the room of
    the KV cache, None: enough. `delay_s` passes between sending and the scheduler's queue,
    `answer_s` between the engine's token and the client; `lag_steps` whole steps pass before an
    arrival is scheduled (2 with asynchronous scheduling, whose next batch is already decided).
    """

    concurrency: int
    prompt_tokens: int
    output_tokens: int
    max_num_batched_tokens: int
    max_num_seqs: int
    cache_tokens: int | None = None
    shortest: float = 1.0
    delay_s: float = 0.0
    answer_s: float = 0.0
    lag_steps: int = 0

    def __post_init__(self) -> None:
        for name in (
            "concurrency",
            "prompt_tokens",
            "output_tokens",
            "max_num_batched_tokens",
            "max_num_seqs",
        ):
            if getattr(self, name) < 1:
                raise InvalidInput(f"loop.{name}", f"{getattr(self, name)} is below 1")
        if not 0 < self.shortest <= 1:
            raise InvalidInput("loop.shortest", f"{self.shortest} is no share of a length")
        if self.delay_s < 0 or self.answer_s < 0 or self.lag_steps < 0:
            raise InvalidInput("loop.delay_s", "a delay is not negative")
        longest = self.prompt_tokens + self.output_tokens
        if self.cache_tokens is not None and self.cache_tokens < longest:
            raise InvalidInput("loop.cache_tokens", f"{self.cache_tokens} hold no whole request")

    @property
    def most_tokens(self) -> int:
        """Tokens in the cache if all requests that run at once were at their end."""
        running = min(self.concurrency, self.max_num_seqs)
        return running * (self.prompt_tokens + self.output_tokens)

    @property
    def mean_share(self) -> float:
        """Mean length over the stated one."""
        return (1 + self.shortest) / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopTimes:
    """Means over the requests of a closed loop, seconds; throughput in requests and tokens."""

    ttft_s: float
    tpot_s: float
    requests_per_s: float
    output_tokens_per_s: float
    running: float
    preemptions: int = 0

    def __post_init__(self) -> None:
        if not math.isfinite(self.ttft_s + self.tpot_s):
            raise InvalidInput("loop", "has no finite times")
