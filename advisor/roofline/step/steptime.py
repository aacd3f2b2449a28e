"""What a step costs, as the simulator asks for it: any model of a step, tabulated.

A model of step time implements `StepTime`. The simulator runs on its `StepTables`, plain arrays
that compiled code interpolates: every model, fitted, analytic or measured kernel by kernel, runs
at the same speed.
"""

from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from advisor.errors import InvalidInput
from advisor.roofline.step.batch import StepBatch

Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLimits:
    """How far tables must reach; beyond them the last slope goes on."""

    max_tokens: int
    max_requests: int
    max_context: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JointAttention:
    """Seconds of all attention of a step on rising grids, where chunks and decodes do not add.

    Axes of `seconds`: prompt tokens of the step `new` (0 first), `cached` as `joint.chunk_length`
    gives it (-1 first), decoding requests (0 first), their mean context.
    Multilinear in between (`joint_seconds`). `tail_alone` and `tail_beside` are what the longest of
    unequal decodes costs on top, alone and beside a chunk (`effective_contexts`);
    fewer than `tail_from` decodes alone have none, the kernel splits their contexts.
    """

    new: Floats
    cached: Floats
    requests: Floats
    contexts: Floats
    seconds: Floats
    tail_alone: float = 0.0
    tail_beside: float = 0.0
    tail_from: float = 0.0

    def __post_init__(self) -> None:
        grids = (self.new, self.cached, self.requests, self.contexts)
        if self.seconds.shape != tuple(len(grid) for grid in grids):
            raise InvalidInput("joint.seconds", "has not the shape of its four grids")
        for name in ("new", "cached", "requests", "contexts"):
            grid = getattr(self, name)
            if len(grid) == 0 or bool((np.diff(grid) <= 0).any()):
                raise InvalidInput(f"joint.{name}", "is not a rising grid")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTables:
    """Seconds of one step by what it computes, on rising grids, linear in between.

    ``device = dense(T) + head(rows) + decode(n, s) + sum over chunks of prefill(new, cached)
    + draft(n)`` with T positions through the blocks, rows through the head, n decoding requests
    at a mean context of s tokens. ``host = host_s + host_request_s * requests``. The step takes
    the longer of both with `async_scheduling`, else their sum. A step without positions takes 0.

    With `joint`, attention is its look-up instead of decode(n, s) and the sum over chunks.

    Shapes: `dense_s` as `tokens`, `head_s` as `rows`, `decode_s` (requests, contexts), `prefill_s`
    (new, cached), `draft_s` as `requests`. Beyond a grid the last slope goes on, never below 0.
    """

    tokens: Floats
    dense_s: Floats
    rows: Floats
    head_s: Floats
    requests: Floats
    contexts: Floats
    decode_s: Floats
    new: Floats
    cached: Floats
    prefill_s: Floats
    draft_s: Floats
    host_s: float = 0.0
    host_request_s: float = 0.0
    async_scheduling: bool = False
    joint: JointAttention | None = None

    def __post_init__(self) -> None:
        expected = {
            "dense_s": (len(self.tokens),),
            "head_s": (len(self.rows),),
            "decode_s": (len(self.requests), len(self.contexts)),
            "prefill_s": (len(self.new), len(self.cached)),
            "draft_s": (len(self.requests),),
        }
        for name, shape in expected.items():
            if getattr(self, name).shape != shape:
                raise InvalidInput(f"tables.{name}", f"has not the shape {shape}")
        for name in ("tokens", "rows", "requests", "contexts", "new", "cached"):
            grid = getattr(self, name)
            if len(grid) == 0 or bool((np.diff(grid) <= 0).any()):
                raise InvalidInput(f"tables.{name}", "is not a rising grid")


class StepTime(Protocol):
    """A model of what one step takes."""

    @property
    def not_modelled(self) -> tuple[str, ...]:
        """What this model leaves out, a phrase each."""
        ...

    def seconds(self, batch: StepBatch) -> float:
        """Seconds of one step."""
        ...

    def tables(self, limits: TableLimits) -> StepTables:
        """The model on grids up to `limits`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AffineStep:
    """``T0 + c_t T + c_kv sum(context) + c_r requests + c_pf pairs`` (handbook 3.3), seconds.

    `pair_s` is the cost of one query-key pair of a prompt chunk.
    """

    fixed_s: float
    token_s: float = 0.0
    context_s: float = 0.0
    request_s: float = 0.0
    pair_s: float = 0.0
    draft_s: float = 0.0
    async_scheduling: bool = False
    not_modelled: tuple[str, ...] = field(
        default=("the knee between reading and computing", "graph padding", "communication")
    )

    def seconds(self, batch: StepBatch) -> float:
        """Seconds of one step; an empty one takes none."""
        if not batch.rows:
            return 0.0
        pairs = sum(
            p.new_tokens * p.cached_tokens + p.new_tokens * (p.new_tokens + 1) / 2
            for p in batch.prefills
        )
        requests = len(batch.decode_contexts) + len(batch.prefills)
        drafted = self.draft_s if batch.draft_tokens else 0.0
        return (
            self.fixed_s
            + self.token_s * batch.tokens
            + self.context_s * sum(batch.decode_contexts)
            + self.request_s * requests
            + self.pair_s * pairs
            + drafted
        )

    def tables(self, limits: TableLimits) -> StepTables:
        """Exact but for pairs, which are quadratic between the points of a fine grid."""
        new = np.unique(np.geomspace(1, max(2, limits.max_tokens), 48).round())
        cached = np.array([0.0, float(limits.max_context)])
        pairs = new[:, None] * cached[None, :] + (new * (new + 1) / 2)[:, None]
        line = np.array([0.0, 1.0])
        return StepTables(
            tokens=line,
            dense_s=line * self.token_s,
            rows=line,
            head_s=line * 0.0,
            requests=line,
            contexts=line,
            decode_s=self.context_s * line[:, None] * line[None, :],
            new=new,
            cached=cached,
            prefill_s=self.pair_s * pairs,
            draft_s=np.full(2, self.draft_s),
            host_s=self.fixed_s,
            host_request_s=self.request_s,
        )
