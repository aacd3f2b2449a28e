"""One suite on the planted engine and on real vLLM: what the probes rely on."""

import http.client
import itertools
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advisor.measurement.records import EngineCounters, Outcome, QualityPass, RequestRecord
from advisor.serving import FunctionalSettings, Levers, NgramSpeculation, ServingConfig
from advisor.traffic.trace import Request, RequestKind
from probes.load.plan import LoadPlan, ReplayRule, load_plan
from probes.load.runner import run_load
from probes.load.sse import EventStream, Frame
from probes.quality import QualityWork, quality_pass
from probes.samples import Sample
from probes.vllm.command import EngineSpec
from probes.vllm.engine import RunningEngine
from probes.vllm.metrics import GaugeSampler, difference
from probes.vllm.processes import find_engines
from probes.vllm.server import StartPlan, start_engine
from tests.fakes.engines import chat_request, planted_plan

BLOCK = 32
DRAFTED = 3
FUNCTIONAL = FunctionalSettings(max_model_len=1024, enforce_eager=True, kv_cache_space_gib=1)
# Drafting and prefix caching at once, so that one start shows both.
BUSY = ServingConfig(
    functional=FUNCTIONAL,
    levers=Levers(
        block_size=BLOCK,
        enable_prefix_caching=True,
        # The type that every processor has instructions for.
        dtype="float32",
        speculative_config=NgramSpeculation(num_speculative_tokens=DRAFTED),
    ),
)
ONE = ServingConfig(
    functional=FUNCTIONAL, levers=replace(BUSY.levers, max_num_seqs=1, speculative_config=None)
)
JSON_BODY = {"Content-Type": "application/json"}  # vLLM refuses a body without it
TRUTH: dict[str, Any] = {
    "acceptance": [{"contains": "Repeat", "per_position": [0.9, 0.8, 0.7], "coverage": 0.9}],
    "core_process": True,
    "base_step_s": 0.01,
}
RULE = ReplayRule(cap_tokens=48, default_tokens=24, fixed=True)
SHARED = " ".join(f"Rule {i}: answer politely and briefly." for i in range(12))
COPY = "Repeat this list word for word, twice: " + ", ".join(f"item {i}" for i in range(12))


def plan_for(engine: RunningEngine, requests: list[Request], concurrency: int) -> LoadPlan:
    """A closed loop on `engine`."""
    return load_plan(
        requests,
        host=engine.host,
        port=engine.port,
        model=engine.served_model_name,
        concurrency=concurrency,
        rule=RULE,
    )


def measured(
    engine: RunningEngine, requests: list[Request], concurrency: int = 1
) -> tuple[list[RequestRecord], EngineCounters]:
    """Records of the client and counters of the engine over one load."""
    before = engine.snapshot()
    with GaugeSampler(engine.snapshot, period_s=0.05) as sampler:
        records = list(run_load(plan_for(engine, requests, concurrency)).records)
    return records, difference(before, engine.snapshot(), sampler.peaks)


def raw_frames(engine: RunningEngine, body: dict[str, Any]) -> tuple[int, list[Frame]]:
    """Status and frames of one streamed chat answer, as they came."""
    connection = http.client.HTTPConnection(engine.host, engine.port, timeout=120)
    try:
        asked = {"model": engine.served_model_name, "stream": True, "max_tokens": 4, **body}
        connection.request("POST", "/v1/chat/completions", json.dumps(asked), JSON_BODY)
        response = connection.getresponse()
        return response.status, list(EventStream().feed(response.read()))
    finally:
        connection.close()


def quality_work() -> QualityWork:
    """Prompts of both routes, twelve tokens at most."""
    requests = (
        *(chat_request(i, f"Name {i + 2} colours.", temperature=0.9) for i in range(3)),
        Request(id="t", index=3, line=4, kind=RequestKind.COMPLETION, prompt="Once upon a time"),
    )
    sample = Sample(
        workload_digest="w", requests=requests, output_tokens=(None,) * 4, rule=RULE
    ).capped(12)
    return QualityWork(sample=sample, passes=2, finished=(), reference=None)


def passed(engine: RunningEngine, work: QualityWork) -> QualityPass:
    """One quality pass from an empty cache."""
    engine.reset_prefix_cache()
    return quality_pass(
        engine, work, cancelled=threading.Event(), on_progress=lambda _done, _total: None
    )


def agreement(reference: QualityPass, other: QualityPass, among: set[str] | None = None) -> float:
    """Share of positions of the reference at which `other` would have said the same."""
    forced = {answer.request_id: answer.forced for answer in other.answers}
    same = [
        mine == theirs
        for answer in reference.answers
        if among is None or answer.request_id in among
        for mine, theirs in zip(answer.greedy, forced[answer.request_id] or (), strict=True)
    ]
    return sum(same) / len(same)


class EngineContract:
    """The suite. A subclass says how its engine is started."""

    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls, busy_plan: StartPlan) -> Iterator[RunningEngine]:
        """One start for all tests of the class."""
        with start_engine(busy_plan) as engine:
            yield engine

    def test_it_serves_under_its_token(self, engine: RunningEngine) -> None:
        """Health answers and the model list holds this start's own name."""
        assert engine.healthy()
        assert engine.served_model_name in engine.model_names()

    def test_its_facts_are_known(self, engine: RunningEngine) -> None:
        """Capacity, block size and levers as it resolved them."""
        facts = engine.facts

        assert facts.vllm_version
        assert (facts.block_size, facts.prefix_caching) == (BLOCK, True)
        assert (facts.dtype, facts.max_model_len) == ("float32", 1024)
        assert facts.async_scheduling is False
        assert (facts.speculative_method, facts.speculative_tokens) == ("ngram", DRAFTED)
        assert facts.start_s == pytest.approx(sum(seconds for _, seconds in facts.start_phases))
        assert facts.kv_cache_tokens is not None
        assert facts.max_concurrency == pytest.approx(facts.kv_cache_tokens / 1024, rel=0.02)

    def test_the_first_frame_of_a_chat_carries_no_token(self, engine: RunningEngine) -> None:
        """A role-only frame opens the stream; usage closes it."""
        message = {"role": "user", "content": "Say hello."}
        status, frames = raw_frames(
            engine,
            {
                "messages": [message],
                "return_token_ids": True,
                "stream_options": {"include_usage": True},
            },
        )

        assert status == 200
        assert not frames[0].carries_token
        assert frames[1].carries_token
        assert frames[-2].usage is not None
        assert frames[-1].done

    def test_a_chat_returns_the_tokens_it_was_asked_for(self, engine: RunningEngine) -> None:
        """Usage, token ids and the fixed length agree."""
        records, _ = measured(engine, [chat_request(0, "Tell a story.", temperature=0.0)])
        record = records[0]

        assert (record.outcome, record.error) == (Outcome.OK, None)
        assert record.output_tokens == RULE.default_tokens
        assert len(record.token_ids or ()) == RULE.default_tokens
        assert record.finish_reason == "length"
        assert (record.prompt_tokens or 0) > 3
        assert 0 < (record.ttft_s or 0) < record.e2e_s

    def test_a_plain_prompt_and_token_ids_are_answered_too(self, engine: RunningEngine) -> None:
        """The completions route, for rows without messages and rows with lengths only."""
        rows = [
            Request(id="t", index=0, line=1, kind=RequestKind.COMPLETION, prompt="Once upon a"),
            Request(id="l", index=1, line=2, kind=RequestKind.LENGTHS, prompt_tokens=40),
        ]
        rule = replace(RULE, vocab_size=30_000)
        plan = replace(
            plan_for(engine, rows[:1], 1),
            requests=load_plan(
                rows, host="-", port=1, model=engine.served_model_name, concurrency=1, rule=rule
            ).requests,
        )
        records = run_load(plan).records
        text, lengths = sorted(records, key=lambda record: record.request_id, reverse=True)

        assert (text.error, lengths.error) == (None, None)
        assert lengths.prompt_tokens == 40
        assert len(text.token_ids or ()) == len(lengths.token_ids or ()) == RULE.default_tokens

    def test_counters_agree_with_the_clients_records(self, engine: RunningEngine) -> None:
        """Generated and prompt tokens are those that the clients saw; steps and peaks are known."""
        requests = [chat_request(i, f"Name {i + 2} colours.", temperature=0.0) for i in range(6)]
        records, counters = measured(engine, requests, concurrency=3)

        assert counters.generation_tokens == sum(record.output_tokens or 0 for record in records)
        assert counters.prompt_tokens == sum(record.prompt_tokens or 0 for record in records)
        assert counters.engine_steps is not None
        assert 0 < counters.engine_steps < counters.generation_tokens
        assert counters.peak_running is not None
        assert 1 < counters.peak_running <= 3
        assert 0 < (counters.peak_kv_usage or 0) < 1
        assert counters.preemptions == 0

    def test_a_repeated_beginning_hits_in_whole_blocks(self, engine: RunningEngine) -> None:
        """Nothing after a reset, whole blocks the second time."""
        requests = [chat_request(0, f"{SHARED} Who are you?", temperature=0.0)]
        engine.reset_prefix_cache()
        _, cold = measured(engine, requests)
        records, warm = measured(engine, requests)
        engine.reset_prefix_cache()
        _, again = measured(engine, requests)

        assert cold.prefix_queries > 2 * BLOCK
        assert (cold.prefix_hits, again.prefix_hits) == (0, 0)
        assert warm.prefix_hits >= BLOCK
        assert warm.prefix_hits % BLOCK == 0
        assert records[0].cached_tokens == warm.prefix_hits

    def test_copying_is_drafted_and_accepted_by_position(self, engine: RunningEngine) -> None:
        """Drafts are accepted from the front, and a step can yield several tokens."""
        requests = [chat_request(i, COPY, temperature=0.0, output_tokens=48) for i in range(2)]
        records, counters = measured(engine, requests)

        assert counters.drafts > 0
        assert counters.accepted > 0
        assert len(counters.accepted_per_position) == DRAFTED
        assert sum(counters.accepted_per_position) == counters.accepted <= counters.draft_tokens
        assert list(counters.accepted_per_position) == sorted(
            counters.accepted_per_position, reverse=True
        )
        assert all(len(record.frame_times_s) < 48 for record in records)
        assert all(record.output_tokens == 48 for record in records)

    def test_what_it_cannot_serve_is_a_failure(self, engine: RunningEngine) -> None:
        """A prompt beyond the length is refused by status; the record quotes nothing of it."""
        (record,), counters = measured(engine, [chat_request(0, "secret " * 1500)])

        assert record.outcome is Outcome.FAILED
        assert (record.error or "").startswith("http_400")
        assert "secret" not in repr(record)
        assert counters.generation_tokens == 0

    def test_a_gang_waits_for_its_longest_answer(self, engine: RunningEngine) -> None:
        """Two at once, then the next two; the short answers leave their slots empty."""
        requests = [
            chat_request(i, f"List {i + 3} animals.", temperature=0.0, output_tokens=(4, 24)[i % 2])
            for i in range(4)
        ]
        plan = plan_for(engine, requests, 2)
        records = run_load(replace(plan, schedule=replace(plan.schedule, gang=True))).records
        rows = {record.request_id: record for record in records}
        first, second = [rows["r0"], rows["r1"]], [rows["r2"], rows["r3"]]

        assert [record.output_tokens for record in (*first, *second)] == [4, 24, 4, 24]
        assert first[0].end_s < first[1].end_s <= min(record.sent_s for record in second)
        assert {record.intended_s for record in second} == {first[1].end_s}

    def test_greedy_answers_repeat_and_come_with_their_ids(self, engine: RunningEngine) -> None:
        """Two passes over chats and a completion, each ended by itself or by its limit."""
        work = quality_work()
        first = passed(engine, work)
        second = passed(engine, replace(work, finished=(first,)))
        alike = [
            len(mine.greedy) == len(other.greedy) and mine.greedy[:4] == other.greedy[:4]
            for mine, other in zip(first.answers, second.answers, strict=True)
        ]

        assert [answer.request_id for answer in first.answers] == ["r0", "r1", "r2", "t"]
        assert all(1 <= len(answer.greedy) <= 12 for answer in first.answers)
        assert sum(alike) >= 3

    def test_it_says_its_most_likely_token_at_every_position(self, engine: RunningEngine) -> None:
        """Forced to its own greedy answer it agrees; forced to another's it hardly does."""
        work = quality_work()
        own = passed(engine, work)
        turned = {
            answer.request_id: tuple(reversed(answer.greedy))
            for answer in own.answers
            if len(set(answer.greedy)) > 4
        }
        answers = tuple(
            replace(answer, greedy=turned.get(answer.request_id, answer.greedy))
            for answer in own.answers
        )
        other = passed(engine, replace(work, reference=replace(own, answers=answers)))

        assert agreement(own, own) > 0.9
        assert turned
        assert agreement(replace(own, answers=answers), other, among=set(turned)) < 0.7

    def test_a_client_that_leaves_frees_its_slot(self, engine: RunningEngine) -> None:
        """The engine stops generating for nobody."""
        message = {"role": "user", "content": "Count to one thousand."}
        connection = http.client.HTTPConnection(engine.host, engine.port, timeout=120)
        asked = {
            "model": engine.served_model_name,
            "messages": [message],
            "stream": True,
            "max_tokens": 600,
            "ignore_eos": True,
        }
        connection.request("POST", "/v1/chat/completions", json.dumps(asked), JSON_BODY)
        connection.getresponse().read(10)
        before = engine.snapshot()
        connection.close()
        for _ in range(100):
            if engine.snapshot().running == 0:
                break
            time.sleep(0.1)
        generated = difference(before, engine.snapshot(), None).generation_tokens

        assert before.running == 1
        assert engine.snapshot().running == 0
        assert generated < 590

    def test_stopping_leaves_nothing(self, engine: RunningEngine) -> None:
        """Front end and core are gone, and its port answers nobody. The last test of the class."""
        processes = find_engines({engine.token})
        engine.stop()

        assert len(processes) >= 3  # guardian, front end, core
        assert find_engines({engine.token}) == ()
        assert not engine.healthy()


def one_at_a_time(plan: StartPlan) -> tuple[list[RequestRecord], EngineCounters]:
    """Four requests at once on an engine of one slot."""
    with start_engine(plan) as engine:
        requests = [chat_request(i, f"Count to {i + 5}.", temperature=0.0) for i in range(4)]
        return measured(engine, requests, concurrency=4)


def check_one_at_a_time(records: list[RequestRecord], counters: EngineCounters) -> None:
    """No two answers overlap."""
    spans = sorted((record.first_token_s or 0, record.last_token_s or 0) for record in records)

    assert counters.peak_running == 1
    assert counters.drafts == 0
    assert all(earlier[1] <= later[0] for earlier, later in itertools.pairwise(spans))


@pytest.mark.processes
class TestPlantedEngine(EngineContract):
    """The planted engine keeps the contract."""

    @pytest.fixture(scope="class")
    @classmethod
    def busy_plan(cls, tmp_path_factory: pytest.TempPathFactory) -> StartPlan:
        """Its start."""
        return planted_plan(tmp_path_factory.mktemp("planted"), TRUTH, BUSY)

    def test_one_slot_runs_one_request_at_a_time(self, tmp_path: Path) -> None:
        """``max_num_seqs=1`` is no batching."""
        check_one_at_a_time(*one_at_a_time(planted_plan(tmp_path, TRUTH, ONE)))


@pytest.mark.engine
class TestVllm(EngineContract):
    """The installed vLLM keeps the contract; one slot is seen in tests/e2e/test_real_engine.py."""

    @pytest.fixture(scope="class")
    @classmethod
    def busy_plan(
        cls, vllm_spec: EngineSpec, demo_model: Path, tmp_path_factory: pytest.TempPathFactory
    ) -> StartPlan:
        """Its start with the demo model."""
        return cls.plan(vllm_spec, demo_model, tmp_path_factory.mktemp("vllm"), BUSY)

    @staticmethod
    def plan(spec: EngineSpec, model: Path, folder: Path, config: ServingConfig) -> StartPlan:
        """One start of vLLM."""
        planted = planted_plan(folder, {}, config)
        size = sum(path.stat().st_size for path in model.iterdir())
        return replace(
            planted,
            engine=spec,
            model_path=str(model),
            model_bytes=size,
            base_env={"PATH": "/usr/bin:/bin", "HOME": str(folder)},
            stop_grace_s=20.0,
        )
