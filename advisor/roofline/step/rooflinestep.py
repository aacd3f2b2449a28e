"""The serial roofline of a served model on one machine: a `StepTime` in closed form.

Handbook 3.1: operations of a step run one after another, so a step is the sum of their maxima; a
compute-bound prefill cannot hide the cache reads of a decode.
"""

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from advisor.errors import InvalidInput
from advisor.roofline.step.batch import StepBatch
from advisor.roofline.step.machine import Machine
from advisor.roofline.step.mixing import Mixing, mixings
from advisor.roofline.step.operations import (
    REDUCTIONS,
    elementwise_bytes,
    message_bytes,
    sampling_bytes,
)
from advisor.roofline.step.priced import PricedProducts, ProductLines, priced
from advisor.roofline.step.products import Floats, head_product, layer_products
from advisor.roofline.step.served import ServedModel
from advisor.roofline.step.steptime import StepTables, TableLimits

NOT_MODELLED = (
    "padding to CUDA graph sizes",
    "decodes that share an attention kernel with a prompt, which slows them",
    "contexts of one batch as they differ, for windowed layers",
    "experts loaded unevenly among ranks",
    "detokenization and the HTTP front end",
)
_FINE, _COARSE = 1.04, 1.15
_EVERY_TOKEN = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """The operations of a served model that do not depend on the step."""

    blocks: ProductLines
    head: ProductLines
    mixings: tuple[Mixing, ...]
    elementwise_bytes: float
    sampling_bytes: float
    message_bytes: float
    gather_bytes: float
    reductions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflineStep:
    """Seconds of a step of `served` on `machine`, which is one point of all ranges.

    `drafted` is how many tokens each decoding request verifies beside its own in `tables`, whose
    decode part has no axis for it. Arrays in, arrays out: every `*_s` method works element by
    element and broadcasts.
    """

    served: ServedModel
    machine: Machine
    drafted: float = 0.0
    _plan: _Plan = field(init=False, repr=False, compare=False)
    _blocks: PricedProducts = field(init=False, repr=False, compare=False)
    _head: PricedProducts = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.served.tensor_parallel_size > 1 and self.machine.all_reduce is None:
            raise InvalidInput("machine.all_reduce", "is not known for this number of ranks")
        plan = _plan(self.served)
        object.__setattr__(self, "_plan", plan)
        object.__setattr__(self, "_blocks", priced(plan.blocks, self.machine))
        object.__setattr__(self, "_head", priced(plan.head, self.machine))

    @property
    def not_modelled(self) -> tuple[str, ...]:
        """What this model leaves out, a phrase each."""
        return (*NOT_MODELLED, *self.served.model.notes)

    # ------------------------------------------------------------------ parts of a step

    def dense_s(self, tokens: Floats) -> Floats:
        """Blocks without attention: products, elementwise work, messages among ranks.

        And the fixed cost of attention, whose kernel runs once for prompts and decodes.
        """
        plan, machine = self._plan, self.machine
        layers = sum(kind.count for kind in plan.mixings)
        fixed = np.where(tokens > 0, layers * machine.attention_latency_s, 0.0)
        total = fixed + machine.bytes_s(tokens * plan.elementwise_bytes)
        total = total + self._blocks.seconds(tokens)
        if plan.reductions:
            total = total + machine.messages_s(plan.reductions, tokens * plan.message_bytes)
        return np.asarray(total)

    def head_s(self, rows: Floats) -> Floats:
        """Head and sampling of so many positions, with the gather of logits among ranks."""
        plan, machine = self._plan, self.machine
        total = self._head.seconds(rows) + machine.bytes_s(rows * plan.sampling_bytes)
        if plan.reductions:
            # A gather moves half the bytes of an all-reduce.
            total = total + machine.messages_s(1, rows * plan.gather_bytes / 2)
        return np.asarray(total)

    def decode_s(self, requests: Floats, contexts: Floats, queries: float = 1.0) -> Floats:
        """Attention of decoding requests at a mean context, each with `queries` positions."""
        machine = self.machine
        total = np.zeros(np.broadcast(requests, contexts).shape)
        for kind in self._plan.mixings:
            read = kind.decode_read_bytes(requests, contexts)
            done = kind.decode_computed_flops(requests, contexts, queries)
            each = np.maximum(
                read / (machine.cache * machine.bandwidth_bytes_per_s),
                done / (machine.best_attention * machine.rate_flops_per_s),
            )
            total = total + kind.count * each
        return np.asarray(np.where(requests > 0, total, 0.0))

    def prefill_s(self, new: Floats, cached: Floats) -> Floats:
        """Attention of one prompt chunk of `new` tokens after `cached` ones."""
        machine = self.machine
        total = np.zeros(np.broadcast(new, cached).shape)
        for kind in self._plan.mixings:
            done = kind.prefill_computed_flops(new, cached)
            read = kind.prefill_read_bytes(new, cached)
            rate = machine.attention_share(done) * machine.rate_flops_per_s
            each = np.maximum(read / (machine.cache * machine.bandwidth_bytes_per_s), done / rate)
            total = total + kind.count * each
        return np.asarray(np.where(new > 0, total, 0.0))

    def host_s(self, requests: Floats) -> Floats:
        """Work of the host for one step."""
        return np.asarray(self.machine.overhead_s + self.machine.request_s * requests)

    # ------------------------------------------------------------------ whole steps

    def decode_steps_s(
        self, requests: Floats, contexts: Floats, draft_tokens: float = 0.0
    ) -> Floats:
        """Steps that only decode: so many requests at a mean context, element by element."""
        queries = 1 + draft_tokens
        positions = requests * queries
        device = (
            self.dense_s(positions)
            + self.head_s(positions)
            + self.decode_s(requests, contexts, queries)
        )
        return np.asarray(np.where(requests > 0, self._joined(device, requests), 0.0))

    def prefill_steps_s(self, new: Floats, cached: Floats, requests: Floats) -> Floats:
        """Steps that only prefill: `requests` equal chunks each, element by element."""
        device = (
            self.dense_s(new * requests)
            + self.head_s(np.asarray(requests, dtype=np.float64))
            + requests * self.prefill_s(new, cached)
        )
        return np.asarray(np.where(new * requests > 0, self._joined(device, requests), 0.0))

    def seconds(self, batch: StepBatch) -> float:
        """Seconds of one step; an empty one takes none."""
        if not batch.rows:
            return 0.0
        device = self.dense_s(np.array(batch.tokens)) + self.head_s(np.array(batch.rows))
        if batch.decode_contexts:
            count = len(batch.decode_contexts)
            context = np.array(sum(batch.decode_contexts) / count)
            device = device + self.decode_s(np.array(float(count)), context, 1 + batch.draft_tokens)
        if batch.prefills:
            new = np.array([chunk.new_tokens for chunk in batch.prefills])
            cached = np.array([chunk.cached_tokens for chunk in batch.prefills])
            device = device + self.prefill_s(new, cached).sum()
        return float(self._joined(np.asarray(device), np.array(float(batch.requests))))

    def tables(self, limits: TableLimits) -> StepTables:
        """The model on grids; within 2 % of `seconds` for drafts of `drafted` tokens."""
        tokens = self._tokens(limits.max_tokens)
        rows = _grid(limits.max_requests * (1 + self.drafted), _FINE)
        requests = np.concatenate([[0.0], _grid(limits.max_requests, _COARSE)])
        contexts = self._contexts(limits.max_context)
        new = _grid(limits.max_tokens, _COARSE)
        cached = self._contexts(limits.max_context)
        return StepTables(
            tokens=tokens,
            dense_s=self.dense_s(tokens),
            rows=rows,
            head_s=self.head_s(rows),
            requests=requests,
            contexts=contexts,
            decode_s=self.decode_s(requests[:, None], contexts[None, :], 1 + self.drafted),
            new=new,
            cached=cached,
            prefill_s=self.prefill_s(new[:, None], cached[None, :]),
            draft_s=np.zeros_like(requests),
            host_s=self.machine.overhead_s,
            host_request_s=self.machine.request_s,
            async_scheduling=self.machine.async_scheduling,
        )

    # ------------------------------------------------------------------ within

    def _joined(self, device_s: Floats, requests: Floats) -> Floats:
        host = self.host_s(requests)
        if self.machine.async_scheduling:
            return np.asarray(np.maximum(device_s, host))
        return np.asarray(device_s + host)

    def _tokens(self, most: int) -> Floats:
        grid = _grid(most, _FINE)
        if self.machine.packed_tile == 1:
            return grid
        edges = np.arange(self.machine.packed_tile, most + 1, self.machine.packed_tile)
        return np.unique(np.concatenate([grid, edges, edges + 1.0]))

    def _contexts(self, most: int) -> Floats:
        windows = [kind.window for kind in self._plan.mixings if np.isfinite(kind.window)]
        inner = [window for window in windows if window < most]
        return np.unique(np.concatenate([[0.0], _grid(most, _COARSE), inner]))


@lru_cache(maxsize=256)
def _plan(served: ServedModel) -> _Plan:
    ranks = served.tensor_parallel_size
    return _Plan(
        blocks=ProductLines.of(layer_products(served)),
        head=ProductLines.of((head_product(served),)),
        mixings=mixings(served),
        elementwise_bytes=elementwise_bytes(served),
        sampling_bytes=sampling_bytes(served),
        message_bytes=message_bytes(served),
        gather_bytes=float(served.model.vocab_size * served.element_bytes),
        reductions=REDUCTIONS * served.model.num_layers if ranks > 1 else 0,
    )


def _grid(most: float, ratio: float) -> Floats:
    """Every whole number at first, then steps of `ratio`, up to `most`."""
    top = max(2.0, float(np.ceil(most)))
    first = np.arange(1.0, min(top, _EVERY_TOKEN) + 1)
    count = max(2, int(np.ceil(np.log(top / first[-1]) / np.log(ratio))) + 1)
    rest = np.geomspace(first[-1], top, count).round() if top > first[-1] else first[-1:]
    return np.unique(np.concatenate([first, rest]))
