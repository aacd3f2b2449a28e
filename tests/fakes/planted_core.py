"""A planted engine's scheduler and cache on a clock of its own: the same in real and virtual time.

Continuous batching as vLLM does it: running requests first, chunked prefill in the rest of the
token budget, preemption of the youngest when blocks run out, whole blocks reused by prefix.
"""

import random
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.fakes.planted_truth import (
    Acceptance,
    Settings,
    Truth,
    answer_length,
    greedy_ids,
    prompt_rng,
)


@dataclass(eq=False)
class Running:
    """One request in the engine. `computed` tokens of prompt and answer are in the cache."""

    key: str
    prompt: tuple[int, ...]
    limit: int
    answer: tuple[int, ...]
    finish: str
    acceptance: Acceptance
    rng: random.Random
    hashes: tuple[int, ...] = ()
    computed: int = 0
    produced: int = 0
    cached: int = 0
    preempted: bool = False
    blocks: list[int] = field(default_factory=list)

    @property
    def length(self) -> int:
        """Tokens known so far."""
        return len(self.prompt) + self.produced


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Tokens that one request got in a step; `finish` is set with its last ones."""

    key: str
    token_ids: tuple[int, ...]
    finish: str | None
    cached_tokens: int


@dataclass
class Counters:
    """What vLLM counts, since the start."""

    prompt_tokens: int = 0
    generation_tokens: int = 0
    steps: int = 0
    step_tokens: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0
    preemptions: int = 0
    drafts: int = 0
    draft_tokens: int = 0
    accepted: int = 0
    per_position: list[int] = field(default_factory=list)
    finished: int = 0


class BlockPool:
    """Blocks with least-recently-used reuse; a freed block keeps its content until it is taken."""

    def __init__(self, count: int) -> None:
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(count))
        self._hash_of: dict[int, int] = {}
        self._block_of: dict[int, int] = {}
        self._users: dict[int, int] = {}
        self.count = count

    @property
    def free(self) -> int:
        """Blocks that can be taken."""
        return len(self._free)

    def cached(self, hashes: Sequence[int]) -> list[int]:
        """Blocks that hold the longest run of `hashes` from the first."""
        found = []
        for item in hashes:
            block = self._block_of.get(item)
            if block is None:
                break
            found.append(block)
        return found

    def hold(self, blocks: Sequence[int]) -> None:
        """Use cached blocks once more."""
        for block in blocks:
            self._free.pop(block, None)
            self._users[block] = self._users.get(block, 0) + 1

    def take(self, count: int) -> list[int]:
        """`count` blocks, the longest unused first; their old content is forgotten."""
        taken = [self._free.popitem(last=False)[0] for _ in range(count)]
        for block in taken:
            old = self._hash_of.pop(block, None)
            if old is not None:
                self._block_of.pop(old, None)
            self._users[block] = 1
        return taken

    def remember(self, block: int, content: int) -> None:
        """Note what a full block holds, if no other block holds it already."""
        if content not in self._block_of:
            self._hash_of[block] = content
            self._block_of[content] = block

    def release(self, blocks: Sequence[int]) -> None:
        """Give blocks back, the last ones to be taken first."""
        for block in reversed(blocks):
            self._users[block] -= 1
            if self._users[block] == 0:
                self._free[block] = None

    def forget(self) -> bool:
        """Empty the cache; False while blocks are held."""
        if self.free != self.count:
            return False
        self._hash_of.clear()
        self._block_of.clear()
        return True


class PlantedCore:
    """Steps of a planted engine: `submit`, then `step` until it is idle."""

    def __init__(self, truth: Truth, chosen: Settings) -> None:
        self.truth = truth
        self.settings = chosen
        self.pool = BlockPool(truth.num_blocks * truth.block_size // chosen.block_size)
        self.counters = Counters(per_position=[0] * chosen.speculative_tokens)
        self.waiting: deque[Running] = deque()
        self.running: list[Running] = []
        self._rng = random.Random(truth.seed)  # noqa: S311
        self._sequences: dict[str, Running] = {}

    def submit(
        self,
        key: str,
        prompt: tuple[int, ...],
        text: str,
        *,
        limit: int,
        ignore_eos: bool,
        salt: str | None = None,
    ) -> None:
        """Queue a request; `text` decides which planted acceptance it has."""
        natural = answer_length(self.truth, prompt)
        count = limit if ignore_eos else min(limit, natural)
        sequence = Running(
            key=key,
            prompt=prompt,
            limit=count,
            answer=greedy_ids(self.truth, self.settings.arithmetic, prompt, count),
            finish="length" if count == limit else "stop",
            acceptance=self.truth.accepts(text),
            rng=prompt_rng(self.truth.seed + 2, prompt),
            hashes=self._hashes(prompt, salt),
        )
        self._sequences[key] = sequence
        self.waiting.append(sequence)

    def cancel(self, key: str) -> None:
        """Drop a request whose caller left."""
        sequence = self._sequences.pop(key, None)
        if sequence is None:
            return
        if sequence in self.running:
            self.running.remove(sequence)
        else:
            self.waiting.remove(sequence)
        self._release(sequence)

    @property
    def idle(self) -> bool:
        """Whether nothing is queued or running."""
        return not self.waiting and not self.running

    @property
    def kv_usage(self) -> float:
        """Share of blocks in use."""
        return 1 - self.pool.free / self.pool.count

    def step(self) -> tuple[float, list[Output]]:
        """One engine step: how long it takes and what it yields."""
        budget = self.settings.max_num_batched_tokens
        scheduled: list[tuple[Running, int, int]] = []
        for sequence in list(self.running):
            if sequence in self.running and budget > 0:
                drafted = self._drafted(sequence)
                wanted = min(sequence.length - sequence.computed + drafted, budget)
                if self._fits(sequence, wanted):
                    scheduled.append((sequence, wanted, min(drafted, wanted - 1)))
                    budget -= wanted
        scheduled = [item for item in scheduled if item[0] in self.running]
        budget = self._admit(scheduled, budget)
        duration_s = self._duration_s(scheduled)
        outputs = [output for item in scheduled if (output := self._advance(*item)) is not None]
        self.counters.steps += 1
        self.counters.step_tokens += sum(count for _, count, _ in scheduled)
        return duration_s, outputs

    def _admit(self, scheduled: list[tuple[Running, int, int]], budget: int) -> int:
        while self.waiting and budget > 0 and len(self.running) < self.settings.max_num_seqs:
            sequence = self.waiting[0]
            blocks = self._lookup(sequence)
            self.pool.hold(blocks)
            start = len(blocks) * self.settings.block_size
            wanted = min(sequence.length - start, budget)
            if self._blocks_for(start + wanted) - len(blocks) > self.pool.free:
                self.pool.release(blocks)
                break
            self.waiting.popleft()
            self.running.append(sequence)
            sequence.blocks = blocks
            sequence.computed = start
            if self.settings.prefix_caching and not sequence.preempted:
                sequence.cached = start
                self.counters.prefix_queries += len(sequence.prompt)
                self.counters.prefix_hits += start
            self._grow(sequence, start + wanted)
            scheduled.append((sequence, wanted, 0))
            budget -= wanted
        return budget

    def _lookup(self, sequence: Running) -> list[int]:
        """Cached blocks of the prompt; at least one token is always computed."""
        if not (self.settings.prefix_caching and self.truth.prefix_hits):
            return []
        whole = (sequence.length - 1) // self.settings.block_size
        return self.pool.cached(sequence.hashes[:whole])

    def _fits(self, sequence: Running, wanted: int) -> bool:
        """Make room for `wanted` more tokens, if need be by preempting the youngest."""
        needed = self._blocks_for(sequence.computed + wanted) - len(sequence.blocks)
        while needed > self.pool.free:
            victim = self.running.pop()
            self._release(victim)
            victim.computed = 0
            victim.preempted = True
            self.waiting.appendleft(victim)
            self.counters.preemptions += 1
            if victim is sequence:
                return False
        self._grow(sequence, sequence.computed + wanted)
        return True

    def _grow(self, sequence: Running, tokens: int) -> None:
        missing = self._blocks_for(tokens) - len(sequence.blocks)
        sequence.blocks += self.pool.take(max(0, missing))

    def _drafted(self, sequence: Running) -> int:
        """Draft tokens of a decoding request in this step."""
        count = self.settings.speculative_tokens
        decoding = sequence.length - sequence.computed == 1
        if not count or not decoding or sequence.rng.random() >= sequence.acceptance.coverage:
            return 0
        return min(count, max(0, sequence.limit - sequence.produced - 1))

    def _advance(self, sequence: Running, count: int, drafted: int) -> Output | None:
        if sequence.computed + count - drafted < sequence.length:
            sequence.computed += count
            return None
        if sequence.produced == 0:
            self.counters.prompt_tokens += len(sequence.prompt)
        accepted = self._accepted(sequence, drafted)
        new = min(accepted + 1, sequence.limit - sequence.produced)
        ids = sequence.answer[sequence.produced : sequence.produced + new]
        sequence.computed = sequence.length + accepted
        sequence.produced += new
        self.counters.generation_tokens += new
        self._remember(sequence)
        finished = sequence.produced >= sequence.limit
        if finished:
            self.running.remove(sequence)
            self._release(sequence)
            del self._sequences[sequence.key]
            self.counters.finished += 1
        return Output(
            key=sequence.key,
            token_ids=ids,
            finish=sequence.finish if finished else None,
            cached_tokens=sequence.cached,
        )

    def _accepted(self, sequence: Running, drafted: int) -> int:
        if not drafted:
            return 0
        draw = sequence.rng.random()
        shares = sequence.acceptance.per_position[:drafted]
        accepted = sum(1 for share in shares if draw < share)
        self.counters.drafts += 1
        self.counters.draft_tokens += drafted
        self.counters.accepted += accepted
        for position in range(accepted):
            self.counters.per_position[position] += 1
        return accepted

    def _duration_s(self, scheduled: Sequence[tuple[Running, int, int]]) -> float:
        truth = self.truth
        tokens = sum(count for _, count, _ in scheduled)
        context = sum(sequence.computed for sequence, _, _ in scheduled)
        drafted = sum(1 for _, _, drafts in scheduled if drafts)
        duration_s = (
            truth.base_step_s
            + truth.token_s * min(tokens, truth.knee_tokens)
            + truth.beyond_knee_token_s * max(0, tokens - truth.knee_tokens)
            + truth.kv_token_s * context
            + truth.draft_s * drafted
        )
        factor = truth.dtype_factors.get(self.settings.arithmetic, 1.0)
        return duration_s * factor * max(0.1, 1 + truth.noise * self._rng.gauss(0, 1))

    def _remember(self, sequence: Running) -> None:
        if self.settings.prefix_caching:
            for block, content in zip(sequence.blocks, sequence.hashes, strict=False):
                self.pool.remember(block, content)

    def _release(self, sequence: Running) -> None:
        self.pool.release(sequence.blocks)
        sequence.blocks = []

    def _blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.settings.block_size)

    def _hashes(self, prompt: tuple[int, ...], salt: str | None) -> tuple[int, ...]:
        """Chained content hashes of the whole blocks of a prompt; a salt begins another chain."""
        size = self.settings.block_size
        chain = hash(salt) if salt else 0
        found = []
        for start in range(0, len(prompt) - size + 1, size):
            chain = hash((chain, prompt[start : start + size]))
            found.append(chain)
        return tuple(found)
