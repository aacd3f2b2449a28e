"""The truth of a planted engine: what it costs, what it accepts, how it fails. Standard library."""

import random
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """Draft acceptance of the requests whose prompt text contains `contains`.

    `per_position[i]` is the share of drafts whose tokens up to position i+1 are accepted, so it
    does not rise; `coverage` is the share of decode steps for which a draft is found at all.
    """

    contains: str
    per_position: tuple[float, ...]
    coverage: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedFailure:
    """A start that fails: when every named flag has the value, the log is printed instead."""

    when: Mapping[str, str]
    log: tuple[str, ...]
    exit_code: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """Known effects. A step of n tokens that reads c context tokens takes, times the dtype factor,

    ``base_step_s + token_s * min(n, knee_tokens) + beyond_knee_token_s * max(0, n - knee_tokens)
    + kv_token_s * c + draft_s * drafted requests``, times ``1 + noise * N(0, 1)``.

    `dtype_factors` and `flip_rates` go by data type, quantized weights by "int8". A flip rate is
    the share of positions at which the most likely token is another than that of the seed. Of what
    clients have in flight only `client_limit` requests reach the engine at a time.
    """

    seed: int = 1
    base_step_s: float = 0.004
    token_s: float = 2e-5
    knee_tokens: int = 64
    beyond_knee_token_s: float = 2e-5
    kv_token_s: float = 0.0
    draft_s: float = 0.0
    noise: float = 0.0
    dtype: str = "bfloat16"
    dtype_factors: Mapping[str, float] = field(default_factory=dict)
    flip_rates: Mapping[str, float] = field(default_factory=dict)
    client_limit: int | None = None
    acceptance: tuple[Acceptance, ...] = ()
    prefix_hits: bool = True
    block_size: int = 16
    num_blocks: int = 2048
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 2048
    max_model_len: int = 4096
    mean_answer_tokens: int = 40
    vocab_size: int = 32000
    weight_gib: float = 0.25
    bandwidth_bytes_per_s: float = 60e9
    bf16_flops_per_s: float = 4e12
    fp32_flops_per_s: float = 1e12
    start_s: float = 0.1
    core_process: bool = False
    failures: tuple[PlantedFailure, ...] = ()
    die_after_requests: int | None = None

    def accepts(self, text: str) -> Acceptance:
        """The first acceptance whose `contains` is in the text; none drafts nothing."""
        for item in self.acceptance:
            if item.contains in text:
                return item
        return Acceptance(contains="", per_position=(0.0,), coverage=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The levers of one start, resolved."""

    max_num_seqs: int
    max_num_batched_tokens: int
    block_size: int
    prefix_caching: bool
    dtype: str
    speculative_tokens: int
    max_model_len: int
    quantized: bool = False

    @property
    def arithmetic(self) -> str:
        """What the truth's factors and flip rates go by."""
        return "int8" if self.quantized else self.dtype


def settings(truth: Truth, chosen: Mapping[str, object]) -> Settings:
    """The engine's defaults with the `chosen` levers (vLLM's names; absent or None: default)."""
    speculation = chosen.get("speculative_config")
    tokens = speculation["num_speculative_tokens"] if isinstance(speculation, Mapping) else 0
    caching = chosen.get("enable_prefix_caching")
    dtype = chosen.get("dtype")
    return Settings(
        max_num_seqs=_number(chosen, "max_num_seqs", truth.max_num_seqs),
        max_num_batched_tokens=_number(
            chosen, "max_num_batched_tokens", truth.max_num_batched_tokens
        ),
        block_size=_number(chosen, "block_size", truth.block_size),
        prefix_caching=caching is not False,
        dtype=truth.dtype if dtype in {None, "auto"} else str(dtype),
        speculative_tokens=int(tokens),
        max_model_len=_number(chosen, "max_model_len", truth.max_model_len),
        quantized=bool(chosen.get("quantization")),
    )


def read_truth(document: Mapping[str, Any]) -> Truth:
    """A truth from its JSON form; an unknown name is an error, not a default."""
    known = {item.name for item in fields(Truth)}
    unknown = set(document) - known
    if unknown:
        message = f"the truth has no {', '.join(sorted(unknown))}"
        raise ValueError(message)
    values = dict(document)
    values["acceptance"] = tuple(
        Acceptance(
            contains=item["contains"],
            per_position=tuple(item["per_position"]),
            coverage=item.get("coverage", 1.0),
        )
        for item in values.get("acceptance", ())
    )
    values["failures"] = tuple(
        PlantedFailure(
            when=item["when"], log=tuple(item["log"]), exit_code=item.get("exit_code", 1)
        )
        for item in values.get("failures", ())
    )
    return Truth(**values)


def text_ids(text: str, vocab_size: int) -> tuple[int, ...]:
    """Pseudo-tokens of a text: one per word, so texts with one beginning share their first ids."""
    return tuple(zlib.crc32(word.encode()) % vocab_size for word in text.split())


def answer_ids(seed: int, prompt: Sequence[int], count: int, vocab_size: int) -> tuple[int, ...]:
    """The first `count` tokens of the answer to a prompt: the same for every configuration."""
    rng = prompt_rng(seed, prompt)
    return tuple(rng.randrange(vocab_size) for _ in range(count))


def greedy_ids(truth: Truth, arithmetic: str, prompt: Sequence[int], count: int) -> tuple[int, ...]:
    """The first `count` tokens that an engine of this arithmetic answers to a prompt."""
    answer: list[int] = []
    base = answer_ids(truth.seed, prompt, count, truth.vocab_size)
    flips = _flips(truth, arithmetic, prompt, count)
    astray = False
    for place in range(count):
        astray = astray or flips[place]
        answer.append(_other(truth, base[place], answer, place) if astray else base[place])
    return tuple(answer)


def likely_ids(
    truth: Truth, arithmetic: str, prompt: Sequence[int], given: Sequence[int]
) -> tuple[int, ...]:
    """The most likely token at each position of `given`, with the tokens of `given` before it."""
    base = answer_ids(truth.seed, prompt, len(given), truth.vocab_size)
    flips = _flips(truth, arithmetic, prompt, len(given))
    return tuple(
        _other(truth, base[place], given, place)
        if flips[place] or tuple(given[:place]) != base[:place]
        else base[place]
        for place in range(len(given))
    )


def _flips(truth: Truth, arithmetic: str, prompt: Sequence[int], count: int) -> list[bool]:
    rate = truth.flip_rates.get(arithmetic, 0.0)
    rng = prompt_rng(truth.seed + 3, prompt)
    return [rng.random() < rate for _ in range(count)]


def _other(truth: Truth, base: int, given: Sequence[int], place: int) -> int:
    """A token that is not `base`; it depends on the token before it only."""
    before = given[place - 1] if place else 0
    step = zlib.crc32(f"{truth.seed}:{place}:{before}".encode()) % (truth.vocab_size - 1)
    return (base + 1 + step) % truth.vocab_size


def answer_length(truth: Truth, prompt: Sequence[int]) -> int:
    """Where the answer to a prompt ends by itself: around `mean_answer_tokens`."""
    return max(
        1, round(truth.mean_answer_tokens * prompt_rng(truth.seed + 1, prompt).uniform(0.5, 1.5))
    )


def prompt_rng(seed: int, prompt: Sequence[int]) -> random.Random:
    """Randomness that belongs to a prompt, whatever else runs beside it."""
    return random.Random(f"{seed}:{zlib.crc32(repr(tuple(prompt)).encode())}")  # noqa: S311


def _number(chosen: Mapping[str, object], name: str, otherwise: int) -> int:
    value = chosen.get(name)
    return value if isinstance(value, int) else otherwise
