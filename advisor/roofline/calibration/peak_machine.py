"""A served model on a device at its peaks: seconds of each kind of operation, before any share."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from advisor.hardware import AllReduce, DeviceFacts
from advisor.roofline.calibration.stretches import Stretch
from advisor.roofline.calibration.work import Floats, Work, summed_by
from advisor.roofline.step.mixing import mixings
from advisor.roofline.step.operations import REDUCTIONS, message_bytes
from advisor.roofline.step.products import Product, head_product, layer_products
from advisor.roofline.step.served import ServedModel


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakMachine:
    """Turns steps into seconds at the device's peaks (handbook 3.1).

    `all_reduce` gives the messages among the ranks of a served model; without it they are part
    of what the host adds. Arrays in, arrays out.
    """

    served: ServedModel
    device: DeviceFacts
    all_reduce: AllReduce | None = None

    def dense(self, tokens: Floats) -> tuple[Floats, Floats]:
        """Reading and computing of the blocks' products, shape ``[products, *tokens]``."""
        found = [self._product(product, tokens) for product in layer_products(self.served)]
        return np.array([pair[0] for pair in found]), np.array([pair[1] for pair in found])

    def head(self, rows: Floats) -> tuple[Floats, Floats]:
        """Reading and computing of the head, shape of `rows`."""
        return self._product(head_product(self.served), rows)

    def decodes(
        self, requests: Floats, contexts: Floats, queries: Floats | float = 1.0
    ) -> tuple[Floats, Floats]:
        """Cache reads and arithmetic of decodes by kind of layer, shape ``[kinds, ...]``."""
        cache, attend = [], []
        for kind in mixings(self.served):
            read = kind.decode_read_bytes(requests, contexts)
            done = kind.decode_computed_flops(requests * queries, contexts, 1.0)
            cache.append(kind.count * read / self._bandwidth)
            attend.append(kind.count * done / self._rate)
        return np.array(cache), np.array(attend)

    def prefills(self, new: Floats, cached: Floats) -> Floats:
        """Arithmetic of prompt attention of chunks, element by element."""
        total = np.zeros(np.broadcast(new, cached).shape)
        for kind in mixings(self.served):
            total = total + kind.count * kind.prefill_computed_flops(new, cached)
        return np.asarray(total / self._rate)

    def messages(self, tokens: Floats) -> Floats:
        """All-reduces of steps with so many positions, as measured and not fitted."""
        if self.all_reduce is None:
            return np.zeros_like(tokens)
        count = REDUCTIONS * self.served.model.num_layers
        return np.asarray(count * self.all_reduce.seconds(tokens * message_bytes(self.served)))

    def work(self, runs: Sequence[Sequence[Stretch]]) -> Work:
        """One observation per run; a dtype without a rate raises `UnknownName`."""
        flat = [stretch for run in runs for stretch in run]
        of = np.repeat(np.arange(len(runs)), [len(run) for run in runs]).astype(np.intp)
        steps = np.array([float(stretch.steps) for stretch in flat])
        tokens = np.array([stretch.tokens for stretch in flat])
        dense, head = self.dense(tokens), self.head(np.array([s.rows for s in flat]))
        decodes = self.decodes(
            np.array([float(stretch.decodes) for stretch in flat]),
            np.array([stretch.mean_context for stretch in flat]),
            1 + np.array([stretch.draft_tokens for stretch in flat]),
        )
        read, multiply = (np.vstack([dense[i], head[i]]) * steps for i in (0, 1))
        cache, attend = decodes[0] * steps, decodes[1] * steps
        return Work(
            steps=summed_by(of, steps, len(runs)),
            requests=summed_by(of, steps * [s.requests for s in flat], len(runs)),
            prefill_s=summed_by(of, steps * self._chunks(flat), len(runs)),
            known_s=summed_by(of, steps * self.messages(tokens), len(runs)),
            read_s=read.ravel(),
            multiply_s=multiply.ravel(),
            product_of=np.tile(of, len(read)),
            cache_s=cache.ravel(),
            attend_s=attend.ravel(),
            attention_of=np.tile(of, len(cache)),
        )

    @property
    def _bandwidth(self) -> float:
        return self.device.bandwidth_bytes_per_s.value

    @property
    def _rate(self) -> float:
        return self.device.rate(self.served.computed_dtype).value

    def _product(self, product: Product, positions: Floats) -> tuple[Floats, Floats]:
        units = self.served.format.units if product.packed else self.served.computed_dtype
        read = product.read_bytes(positions, self.served.routing.value) / self._bandwidth
        return read, product.flops(positions) / self.device.rate(units).value

    def _chunks(self, flat: Sequence[Stretch]) -> Floats:
        of = np.repeat(np.arange(len(flat)), [len(stretch.prefills) for stretch in flat])
        chunks = [prefill for stretch in flat for prefill in stretch.prefills]
        new = np.array([chunk.new_tokens for chunk in chunks], dtype=np.float64)
        cached = np.array([chunk.cached_tokens for chunk in chunks], dtype=np.float64)
        return summed_by(of.astype(np.intp), self.prefills(new, cached), len(flat))
