"""A load to simulate, from the requests of a traffic file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.errors import InvalidInput
from advisor.simulator.load import Load
from advisor.traffic.facts import Facts, content_order, facts_of, join_facts
from advisor.traffic.reuse.prefix import Hashes, chain_hashes
from advisor.traffic.trace import Request, TokenColumns

Integers = NDArray[np.int64]
_MASK = (1 << 64) - 1
TOKENS, FILE_IDS = "tokens", "block ids of the file"
NO_ARRIVALS = (
    "the file holds no times of arrival, so that no open loop can be simulated: say --concurrency"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficLoad:
    """The load, how many requests were left out and why, and where prefix sharing comes from.

    `sharing` None: no prompt is known to share a block, every request is computed in full.
    """

    load: Load
    left_out: Mapping[str, int]
    sharing: str | None


class LoadTally:
    """Gathers requests part by part; blocks have `block_size` tokens.

    `file_block_tokens` are the tokens behind one block id of the file, which count where there
    are no tokens.
    """

    def __init__(self, block_size: int, *, file_block_tokens: int | None = None) -> None:
        if block_size < 1:
            raise InvalidInput("block_size", f"{block_size} is not at least 1")
        self._size = block_size
        self._file_size = file_block_tokens
        self._facts: list[Facts] = []
        self._chains: list[Hashes | None] = []
        self._by_tokens = False

    def add(self, requests: Sequence[Request], tokens: TokenColumns | None) -> None:
        """The next part; `tokens` belong to its requests one by one."""
        self._facts.append(facts_of(requests, tokens))
        for place, request in enumerate(requests):
            prompt = None if tokens is None else tokens.prompts.array(place)
            if prompt is None:
                self._chains.append(self._named(request))
                continue
            self._by_tokens = True
            output = None if tokens is None else tokens.outputs.array(place)
            held = prompt if output is None else np.concatenate([prompt, output])
            self._chains.append(chain_hashes(held, self._size))

    def add_facts(self, facts: Facts) -> None:
        """The next part of a file without text and block ids, as columns."""
        self._facts.append(facts)
        self._chains.extend([None] * len(facts))

    def _named(self, request: Request) -> Hashes | None:
        """The blocks that the file names, as blocks of this engine's size; None where it cannot."""
        ids, size = request.block_ids, self._file_size
        if ids is None or size is None:
            return None
        named = np.array([number & _MASK for number in ids], dtype=np.uint64)
        if request.prompt_tokens is not None:
            named = named[: request.prompt_tokens // size]
        if self._size % size == 0:
            return named[self._size // size - 1 :: self._size // size]
        if size % self._size == 0:
            parts = np.arange(size // self._size, dtype=np.uint64)
            # A part of a block is known by the block and its place in it.
            mixed = named[:, None] * np.uint64(0x9E3779B97F4A7C15) + parts[None, :]
            return np.asarray(mixed.reshape(-1), dtype=np.uint64)
        return None

    def finish(self, *, rate: float = 1.0, concurrency: int | None = None) -> TrafficLoad:
        """The load at so many times the file's pace, or with so many requests in flight.

        Requests without a prompt or an output length are left out. An open loop of requests
        without times raises `InvalidInput`.
        """
        if not rate > 0:
            raise InvalidInput("rate", f"{rate} is not above 0")
        facts = join_facts(self._facts)
        order = content_order(facts)
        known = (facts.prompt_tokens > 0) & (facts.output_tokens > 0)
        kept = order[known[order]]
        left = {
            "without a known prompt length": int((facts.prompt_tokens <= 0).sum()),
            "without a known output length": int(
                ((facts.prompt_tokens > 0) & (facts.output_tokens <= 0)).sum()
            ),
        }
        if not len(kept):
            raise InvalidInput("file", "has no request of known lengths to simulate")
        if concurrency is None:
            timed = ~np.isnan(facts.arrival_s[kept])
            if not timed.any():
                raise InvalidInput("--concurrency", NO_ARRIVALS)
            left["without a time of arrival"] = int((~timed).sum())
            kept = kept[timed]
        arrival_s = np.nan_to_num(facts.arrival_s[kept]) / rate
        ids, starts = self._blocks(kept)
        return TrafficLoad(
            load=Load(
                arrival_s=np.maximum.accumulate(arrival_s),
                prompt_tokens=facts.prompt_tokens[kept],
                output_tokens=facts.output_tokens[kept],
                concurrency=concurrency,
                block_ids=ids,
                block_starts=starts,
            ),
            left_out={why: count for why, count in left.items() if count},
            sharing=None if ids is None else TOKENS if self._by_tokens else FILE_IDS,
        )

    def _blocks(self, kept: Integers) -> tuple[Integers | None, Integers | None]:
        """Blocks of the requests kept, numbered from 0; None where none is known."""
        chains = [self._chains[place] for place in kept.tolist()]
        if all(chain is None for chain in chains):
            return None, None
        held = [np.empty(0, dtype=np.uint64) if chain is None else chain for chain in chains]
        starts = np.cumsum([0, *(len(chain) for chain in held)]).astype(np.int64)
        _, numbers = np.unique(np.concatenate(held), return_inverse=True)
        return numbers.astype(np.int64), starts
