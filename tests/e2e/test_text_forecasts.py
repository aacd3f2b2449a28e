"""What the text alone forecasts, against the counters of real vLLM over the same requests."""

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from advisor.measurement.records import EngineCounters, Outcome, RequestRecord
from advisor.serving import FunctionalSettings, Levers, NgramSpeculation, ServingConfig
from advisor.traffic.drafting.lookup import LookupTally
from advisor.traffic.figures import LookupAcceptance
from advisor.traffic.model_folder import read_folder
from advisor.traffic.reuse.tally import BlockTally
from advisor.traffic.tokens import ChatTokenizer
from advisor.traffic.trace import Request
from probes.load.plan import ReplayRule, load_plan
from probes.load.runner import run_load
from probes.vllm.command import EngineSpec
from probes.vllm.engine import RunningEngine
from probes.vllm.metrics import difference
from probes.vllm.server import start_engine
from tests.fakes.engines import chat_request, planted_plan
from tests.fakes.token_rows import array

pytestmark = [pytest.mark.engine, pytest.mark.long]

K, BLOCK = 4, 32
CONFIG = ServingConfig(
    functional=FunctionalSettings(max_model_len=1024, enforce_eager=True, kv_cache_space_gib=1),
    levers=Levers(
        block_size=BLOCK,
        enable_prefix_caching=True,
        # The type that every processor has instructions for.
        dtype="float32",
        speculative_config=NgramSpeculation(num_speculative_tokens=K),
    ),
)
THINGS = "a red apple, an old bridge, three small boats, a quiet garden, the last train"
# Answers that end by themselves, most of them; and answers that must go on, which repeat themselves
# and so are drafted for in most of their steps.
SHORT = (
    f"Repeat word for word, once: {THINGS}",
    f"Repeat word for word, twice: {THINGS}",
    "Write a short story about a river.",
    "What is the capital of France?",
)
LONG = (
    *(f"Repeat word for word, {often} times: {THINGS}" for often in ("three", "four", "ten")),
    *(f"Write a list of {what}, one a line." for what in ("animals", "colours", "towns")),
)
RULES = [f"Rule {n}: answer politely, briefly, and in the language of the guest." for n in range(9)]
# How many of the rules a prompt begins with; equal beginnings share whole blocks.
HEADS = (9, 9, 3, 9, 6, 9, 3, 0, 6, 9)


LOG = logging.getLogger(__name__)


def tell(name: str, offline: object, engine: object) -> None:
    """Shown with ``--log-cli-level=INFO``."""
    LOG.info("%s: %s offline, %s engine", name, offline, engine)


@dataclass(frozen=True)
class Measured:
    """One load: what was sent, what came back, and how the counters grew."""

    requests: list[Request]
    records: list[RequestRecord]
    counters: EngineCounters


@pytest.fixture(scope="module")
def engine(
    vllm_spec: EngineSpec, demo_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningEngine]:
    """vLLM with drafts and a prefix cache, one start for all tests."""
    folder = tmp_path_factory.mktemp("vllm")
    plan = replace(
        planted_plan(folder, {}, CONFIG),
        engine=vllm_spec,
        model_path=str(demo_model),
        model_bytes=sum(path.stat().st_size for path in demo_model.iterdir()),
        base_env={"PATH": "/usr/bin:/bin", "HOME": str(folder)},
        stop_grace_s=20.0,
    )
    with start_engine(plan) as running:
        yield running


@pytest.fixture(scope="module")
def tokenizer(demo_model: Path) -> ChatTokenizer:
    """The demo model's, read as an upload's target is."""

    def read(name: str) -> bytes | None:
        path = demo_model / name
        return path.read_bytes() if path.exists() else None

    return read_folder(read).tokenizer()


def run(
    engine: RunningEngine, requests: list[Request], *, concurrency: int, fixed: bool = False
) -> Measured:
    """The requests at temperature 0, each ended at its limit or, if not `fixed`, before."""
    before = engine.snapshot()
    loaded = run_load(
        load_plan(
            requests,
            host=engine.host,
            port=engine.port,
            model=engine.served_model_name,
            concurrency=concurrency,
            rule=ReplayRule(cap_tokens=128, default_tokens=1, fixed=fixed),
        )
    )
    by_id = {record.request_id: record for record in loaded.records}
    ordered = [by_id[request.id] for request in requests]

    assert all(record.outcome is Outcome.OK for record in ordered)
    return Measured(requests, ordered, difference(before, engine.snapshot(), None))


def prompts(tokenizer: ChatTokenizer, load: Measured) -> list[tuple[int, ...]]:
    """Token ids of the prompts, as long as the engine says that they are."""
    found = [tokenizer.prompt_ids(request) or () for request in load.requests]

    assert [len(ids) for ids in found] == [record.prompt_tokens for record in load.records]
    return found


def asked(texts: Sequence[str], most: int) -> list[Request]:
    """Chats at temperature 0."""
    return [
        chat_request(place, text, temperature=0.0, max_tokens=most)
        for place, text in enumerate(texts)
    ]


def replayed(tokenizer: ChatTokenizer, loads: Sequence[Measured]) -> LookupAcceptance:
    """N-gram acceptance from the token ids that the runs returned."""
    tally, places = LookupTally((K,)), 0
    for load in loads:
        for request, ids, record in zip(
            load.requests, prompts(tokenizer, load), load.records, strict=True
        ):
            tally.add(request, array(ids), array(record.token_ids or ()))
            places += 1
    found = tally.finish(range(places)).of(range(places), K)

    assert found is not None
    return found


def test_offline_acceptance_is_the_engines_own(
    engine: RunningEngine, tokenizer: ChatTokenizer
) -> None:
    """Per position within 0.02 of the drafted steps, tokens per step within 2 %."""
    loads = [
        run(engine, asked(SHORT, 40), concurrency=4),
        run(engine, asked(LONG, 96), concurrency=6, fixed=True),
    ]
    found, counters = replayed(tokenizer, loads), [load.counters for load in loads]
    records = [record for load in loads for record in load.records]
    drafts = sum(item.drafts for item in counters)
    accepted = np.sum([item.accepted_per_position for item in counters], axis=0)
    measured = (accepted / drafts).tolist()
    # A frame is a step; the first comes from the prefill.
    steps = sum(len(record.frame_times_s) - 1 for record in records)
    decoded = sum(len(record.token_ids or ()) - 1 for record in records)
    tell("drafts", found.drafts, drafts)
    tell("draft tokens", found.draft_tokens, sum(item.draft_tokens for item in counters))
    tell("accepted", found.accepted, accepted.sum())
    tell("steps", found.decode_steps, steps)
    tell("by position", found.per_position, measured)
    tell("tokens per step", found.tokens_per_step.value, decoded / steps)

    assert {record.finish_reason for record in records} == {"stop", "length"}
    assert found.drafts == drafts > 100
    assert found.draft_tokens == sum(item.draft_tokens for item in counters)
    assert found.per_position == pytest.approx(measured, abs=0.02)
    assert found.tokens_per_step.value == pytest.approx(decoded / steps, rel=0.02)


def headed() -> list[Request]:
    """Prompts that begin alike for longer or shorter."""
    return [
        chat_request(
            i, " ".join([*RULES[:head], f"Guest {i} asks: where is room {i}?"]), temperature=0.0
        )
        for i, head in enumerate(HEADS)
    ]


def forecast_hits(tokenizer: ChatTokenizer, loads: Sequence[Measured]) -> float:
    """Hit share of prompt tokens of loads that follow each other on one cache."""
    tally, lengths = BlockTally(BLOCK), []
    for load in loads:
        for request, ids, record in zip(
            load.requests, prompts(tokenizer, load), load.records, strict=True
        ):
            tally.add(request, array(ids), array(record.token_ids or ()))
            lengths.append(len(ids))
    found = tally.finish(range(len(lengths)), [None] * len(lengths), np.asarray(lengths)).reuse

    assert found is not None
    return found.ceiling.value


@pytest.mark.parametrize("concurrency", [1, 5])
def test_offline_prefix_hits_are_the_engines_own(
    engine: RunningEngine, tokenizer: ChatTokenizer, concurrency: int
) -> None:
    """Hits over queries within 1 percentage point, one after another and at once."""
    engine.reset_prefix_cache()
    load = run(engine, headed(), concurrency=concurrency)
    hits, queries = load.counters.prefix_hits, load.counters.prefix_queries
    found = forecast_hits(tokenizer, [load])
    tell("hit share", found, hits / queries)
    tell("hit tokens", round(found * queries), hits)

    assert queries == sum(len(ids) for ids in prompts(tokenizer, load))
    assert 0.2 < hits / queries < 0.8
    assert found == pytest.approx(hits / queries, abs=0.01)


def test_a_second_turn_hits_what_the_first_one_generated(
    engine: RunningEngine, tokenizer: ChatTokenizer, demo_model: Path
) -> None:
    """Blocks of an answer are cached: a prompt that repeats it is served beyond the first one."""
    words = Tokenizer.from_file(str(demo_model / "tokenizer.json"))
    engine.reset_prefix_cache()
    first = run(engine, asked(["Write a long story about a river."], 72), concurrency=1)
    [request], [record] = first.requests, first.records
    turns = [
        *json.loads(request.messages or ""),
        {"role": "assistant", "content": words.decode(list(record.token_ids or ()))},
        {"role": "user", "content": "Go on."},
    ]
    again = replace(request, messages=json.dumps(turns), max_tokens=1)
    second = run(engine, [again], concurrency=1)
    hits = sum(load.counters.prefix_hits for load in (first, second))
    queries = sum(load.counters.prefix_queries for load in (first, second))
    found = forecast_hits(tokenizer, [first, second])
    tell("hit share over two turns", found, hits / queries)

    assert hits >= (record.prompt_tokens or 0) // BLOCK * BLOCK + BLOCK
    assert found == pytest.approx(hits / queries, abs=0.01)
