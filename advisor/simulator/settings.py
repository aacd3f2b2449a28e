"""What the scheduler is told, in vLLM's own words (handbook 5.3; vLLM 0.32, v1/core/sched)."""

from dataclasses import dataclass
from typing import Literal

from advisor.errors import InvalidInput, UnknownName

POLICIES = ("fcfs", "priority")
GROUP_KINDS = ("full", "sliding_window", "mamba")


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheGroup:
    """One group of layers on the shared pool of blocks (handbook 2.2).

    `window` is the sliding window in tokens; `state_blocks` what a recurrent group holds per
    request: 1 + drafted tokens, or 2 + them with prefix caching.
    """

    kind: Literal["full", "sliding_window", "mamba"] = "full"
    window: int | None = None
    state_blocks: int = 1

    def __post_init__(self) -> None:
        if self.kind not in GROUP_KINDS:
            raise UnknownName("kind of cache group", self.kind, GROUP_KINDS)
        if (self.window is not None) is not (self.kind == "sliding_window"):
            raise InvalidInput("group.window", "belongs to a sliding window, and it needs one")


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """Drafts of `num_speculative_tokens`, position i accepted at all with chance `survival[i-1]`.

    Unless a load carries acceptance of its own. `schedule` is vLLM's
    ``num_speculative_tokens_per_batch_size``: inclusive ranges of running requests and their k.
    `coverage` is the share of decode steps that get a draft (n-gram misses some), `lookahead` the
    slots that each request reserves beyond its tokens (None: as many as drafts; n-gram: 0).
    `draft_slots` is what each request takes of the token budget on top (a draft model: 1).
    """

    num_speculative_tokens: int
    survival: tuple[float, ...]
    coverage: float = 1.0
    schedule: tuple[tuple[int, int, int], ...] = ()
    lookahead: int | None = None
    draft_slots: int = 0

    def __post_init__(self) -> None:
        if self.num_speculative_tokens < 1 or len(self.survival) != self.num_speculative_tokens:
            raise InvalidInput("speculation.survival", "has one share for each drafted position")
        pairs = zip((1.0, *self.survival), self.survival, strict=False)
        if any(not 0 <= after <= before for before, after in pairs):
            raise InvalidInput("speculation.survival", "does not fall from 1 to 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSettings:
    """One engine's scheduler and its pool of `num_blocks` (block 0 is never used).

    `static_batch` None is vLLM; a number emulates static batching with so many slots: a batch
    is admitted when it is full, when no more can come or when its first request has waited
    `static_wait_s` (None: as long as it takes), and ends with its longest request. Requests that
    are done leave the computation, as in an engine that is sent one batch after the other.
    """

    num_blocks: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    block_size: int = 16
    enable_prefix_caching: bool = True
    scheduling_policy: Literal["fcfs", "priority"] = "fcfs"
    long_prefill_token_threshold: int = 0
    enable_chunked_prefill: bool = True
    reserve_full_isl: bool = True
    watermark: float = 0.0
    async_scheduling: bool = False
    speculation: Speculation | None = None
    groups: tuple[CacheGroup, ...] = (CacheGroup(),)
    static_batch: int | None = None
    static_wait_s: float | None = None

    def __post_init__(self) -> None:
        least = {
            "num_blocks": 2,
            "max_num_seqs": 1,
            "max_num_batched_tokens": 1,
            "max_model_len": 1,
            "block_size": 1,
            "long_prefill_token_threshold": 0,
        }
        for name, bound in least.items():
            if getattr(self, name) < bound:
                raise InvalidInput(name, f"{getattr(self, name)} is below {bound}")
        if not self.enable_chunked_prefill and self.max_num_batched_tokens < self.max_model_len:
            raise InvalidInput(
                "max_num_batched_tokens", "is below max_model_len, which needs chunked prefill"
            )
        if self.static_batch is not None and self.static_batch < 1:
            raise InvalidInput("static_batch", f"{self.static_batch} is below 1")
        if self.scheduling_policy not in POLICIES:
            raise UnknownName("scheduling_policy", self.scheduling_policy, POLICIES)
        if not self.groups:
            raise InvalidInput("groups", "an engine has at least one cache group")
