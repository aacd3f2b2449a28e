"""Silicon rows as load tests: the client's and the server's settings as far as they are public.

InferenceMAX ran the Llama and most mixture rows: its scripts state ten requests per unit of
concurrency, lengths between 0.8 of the nominal and the nominal, 8,192 batched tokens, 90 % of the
memory, no prefix caching, asynchronous scheduling. What is not stated of the other rows is taken
to be the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from advisor.hardware import all_reduce, card
from advisor.roofline.closed_loop.load_test import LoadPoint, LoadTest
from advisor.roofline.closed_loop.loop import ClosedLoop
from advisor.roofline.memory import CacheSettings, DeviceMemory, MemoryPlan, memory_budget
from advisor.roofline.step.efficiency import machine, prior_efficiency
from advisor.roofline.step.served import ServedModel
from tests.validate.silicon.models import MODELS, served_format
from tests.validate.silicon.rows import Row, Series

AUTO, FP8 = "auto", "fp8"
_REQUESTS, _SHORTEST, _BATCHED, _UTILIZATION, _LAG_STEPS = 10, 0.8, 8192, 0.9, 2
_MARGIN_TOKENS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A series under one dtype of the cache, and how its client drew and counted requests."""

    series: Series
    cache_dtype: str
    shortest: float = _SHORTEST
    requests_each: int = _REQUESTS

    @property
    def served(self) -> ServedModel:
        series = self.series
        return ServedModel(
            model=MODELS[series.model].shape,
            weights=served_format(series.model, series.precision),
            kv_cache_dtype=self.cache_dtype,
            tensor_parallel_size=series.ranks,
            expert_parallel=series.expert_ranks > 1,
        )

    def test(self, rows: Sequence[Row]) -> LoadTest:
        """The rows as a load test on the card's assumed machine."""
        served, series = self.served, self.series
        device = card(series.card).facts
        return LoadTest(
            served=served,
            machine=machine(
                device,
                served,
                prior_efficiency(device),
                all_reduce=all_reduce(series.card, series.ranks) if series.ranks > 1 else None,
            ),
            points=tuple(self._point(row) for row in rows),
        )

    def _point(self, row: Row) -> LoadPoint:
        return LoadPoint(
            loop=ClosedLoop(
                concurrency=row.concurrency,
                prompt_tokens=row.prompt_tokens,
                output_tokens=row.output_tokens,
                max_num_batched_tokens=_BATCHED,
                max_num_seqs=row.concurrency,
                cache_tokens=self._cache_tokens(row),
                shortest=self.shortest,
                lag_steps=_LAG_STEPS,
            ),
            requests=self.requests_each * row.concurrency,
            ttft_s=row.ttft_s,
            tpot_s=row.tpot_s,
        )

    def _cache_tokens(self, row: Row) -> int:
        """Room of the cache as the memory model says, at least one request."""
        longest = row.prompt_tokens + row.output_tokens
        plan = MemoryPlan(
            model=replace(
                MODELS[self.series.model].shape,
                weights=served_format(self.series.model, self.series.precision),
            ),
            settings=CacheSettings(
                dtype="bfloat16",
                max_model_len=longest + _MARGIN_TOKENS,
                max_num_batched_tokens=_BATCHED,
                kv_cache_dtype=self.cache_dtype,
                tensor_parallel=self.series.ranks,
                enable_prefix_caching=False,
            ),
            device=DeviceMemory(
                kind="cuda",
                total_bytes=card(self.series.card).facts.memory_bytes,
                utilization=_UTILIZATION,
            ),
            max_num_seqs=row.concurrency,
        )
        return max(longest, int(memory_budget(plan).tokens.value))


def stated_cache(series: Series) -> str:
    """Dtype of the cache in InferenceMAX's scripts; the engine's default elsewhere."""
    if series.model.endswith("Llama-3.1-70B"):
        return FP8
    return FP8 if series.model.startswith("openai/") and series.card == "b200" else AUTO
