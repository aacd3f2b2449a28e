"""The planted engine does what was planted: its laws, in virtual time."""

from dataclasses import replace

import pytest

from advisor.serving import Levers, NgramSpeculation, ServingConfig
from probes.load.plan import LoadPlan, ReplayRule, load_plan
from tests.fakes.engines import chat_request
from tests.fakes.planted_core import PlantedCore
from tests.fakes.planted_replay import planted_core, replay
from tests.fakes.planted_truth import Acceptance, Truth, greedy_ids, likely_ids, read_truth

TRUTH = Truth(base_step_s=0.010, token_s=0.0, beyond_knee_token_s=1e-4, knee_tokens=32)
COPYING = Acceptance(contains="copy", per_position=(0.8, 0.6, 0.4, 0.2), coverage=0.9)
NGRAM = ServingConfig(levers=Levers(speculative_config=NgramSpeculation(num_speculative_tokens=4)))
ONE = ServingConfig(levers=Levers(max_num_seqs=1))


def plan(count: int, *, concurrency: int, text: str = "tell me", tokens: int = 40) -> LoadPlan:
    """A closed loop of requests with one long beginning in common."""
    shared = " ".join(f"rule{i}" for i in range(64))
    requests = [
        chat_request(i, f"{shared} {text} number {i}", output_tokens=tokens) for i in range(count)
    ]
    rule = ReplayRule(cap_tokens=256, default_tokens=16, fixed=True)
    return load_plan(requests, host="h", port=1, model="m", concurrency=concurrency, rule=rule)


def throughput(truth: Truth, config: ServingConfig, load: LoadPlan) -> float:
    """Tokens per second of a fresh engine."""
    records, counters = replay(planted_core(truth, config), load)
    return counters.generation_tokens / max(record.end_s for record in records)


def test_every_token_and_request_is_accounted_for() -> None:
    """What the clients got is what the engine counted, and nothing is held at the end."""
    core = planted_core(TRUTH, NGRAM)
    records, counters = replay(core, plan(20, concurrency=4, text="copy"))

    assert len(records) == 20
    assert sum(record.output_tokens or 0 for record in records) == counters.generation_tokens
    assert counters.accepted == sum(counters.accepted_per_position)
    assert core.pool.free == core.pool.count


def test_the_same_seed_gives_the_same_records() -> None:
    """Two runs do not differ."""
    noisy = replace(TRUTH, noise=0.2)
    first, second = (replay(planted_core(noisy, NGRAM), plan(9, concurrency=3)) for _ in range(2))

    assert first == second


def test_one_request_alone_takes_its_steps() -> None:
    """One step per token at the planted time; the prompt's step is beyond the knee."""
    load = plan(1, concurrency=1, tokens=10)
    (record,), counters = replay(planted_core(TRUTH, ServingConfig()), load)
    prompt_s = 0.010 + 1e-4 * ((record.prompt_tokens or 0) - 32)

    assert counters.engine_steps == 10
    assert record.ttft_s == pytest.approx(prompt_s)
    assert record.tpot_s == pytest.approx(0.010)


def test_batching_gains_and_saturates() -> None:
    """Steps cost the same below the knee: eight slots give almost eight times as much."""
    load = plan(32, concurrency=8)

    assert throughput(TRUTH, ServingConfig(), load) > 5 * throughput(TRUTH, ONE, load)


def test_one_slot_runs_one_request_at_a_time() -> None:
    """However many are sent."""
    _, counters = replay(planted_core(TRUTH, ONE), plan(6, concurrency=6))

    assert counters.peak_running == 1


def test_acceptance_is_the_planted_one_where_the_text_has_it() -> None:
    """Shares by position within their statistical error; none for other text."""
    truth = replace(TRUTH, acceptance=(COPYING,))
    _, copying = replay(planted_core(truth, NGRAM), plan(150, concurrency=8, text="copy"))
    _, prose = replay(planted_core(truth, NGRAM), plan(20, concurrency=8, text="prose"))
    shares = [accepted / copying.drafts for accepted in copying.accepted_per_position]

    assert shares == pytest.approx([0.8, 0.6, 0.4, 0.2], abs=0.06)
    assert prose.drafts == 0


def test_speculation_changes_no_token() -> None:
    """It changes when tokens come, not which."""
    truth = replace(TRUTH, acceptance=(COPYING,))
    load = plan(6, concurrency=2, text="copy")
    answers = [
        {record.request_id: record.token_ids for record in replay(planted_core(truth, c), load)[0]}
        for c in (ServingConfig(), NGRAM)
    ]

    assert answers[0] == answers[1]


def test_speculation_can_be_planted_to_hurt() -> None:
    """Rejected drafts cost their tokens beyond the knee."""
    useless = replace(TRUTH, acceptance=(replace(COPYING, per_position=(0.0,) * 4),))
    load = plan(32, concurrency=16, text="copy")

    assert throughput(useless, NGRAM, load) < throughput(useless, ServingConfig(), load)


def test_shared_blocks_are_computed_once_unless_planted_otherwise() -> None:
    """Whole blocks hit; `prefix_hits` false makes the cache do nothing."""
    load = plan(10, concurrency=1)
    _, caching = replay(planted_core(TRUTH, ServingConfig()), load)
    useless = planted_core(replace(TRUTH, prefix_hits=False), ServingConfig())

    assert caching.prefix_hits % TRUTH.block_size == 0
    assert caching.prefix_hits == 9 * 64
    assert replay(useless, load)[1].prefix_hits == 0


def test_a_second_load_begins_with_an_empty_cache() -> None:
    """As between two load points of a study."""
    core: PlantedCore = planted_core(TRUTH, ServingConfig())
    load = plan(10, concurrency=1)

    assert replay(core, load)[1].prefix_hits == replay(core, load)[1].prefix_hits


def test_a_small_cache_preempts_and_still_answers() -> None:
    """Blocks run out while requests grow: the youngest starts again."""
    small = replace(TRUTH, num_blocks=24)
    records, counters = replay(
        planted_core(small, ServingConfig(levers=Levers(enable_prefix_caching=False))),
        plan(8, concurrency=8, tokens=80),
    )

    assert counters.preemptions > 0
    assert [record.output_tokens for record in records] == [80] * 8


def test_the_dtype_factor_can_favour_either() -> None:
    """On some processors 32-bit arithmetic is the faster one."""
    full = ServingConfig(levers=Levers(dtype="float32"))
    load = plan(8, concurrency=4)
    faster = replace(TRUTH, dtype_factors={"float32": 0.5})

    assert throughput(faster, full, load) == pytest.approx(
        2 * throughput(faster, ServingConfig(), load)
    )


def gangs(count: int, *, concurrency: int) -> LoadPlan:
    """Requests with outputs of 10, 20, 30 and 40 tokens in turn, submitted in gangs."""
    requests = [chat_request(i, f"{i} say", output_tokens=10 * (i % 4 + 1)) for i in range(count)]
    rule = ReplayRule(cap_tokens=256, default_tokens=16, fixed=True)
    return load_plan(
        requests, host="h", port=1, model="m", concurrency=concurrency, rule=rule, gang=True
    )


def test_gangs_never_overlap_and_keep_their_order() -> None:
    """The next four start when the last of the four before has ended."""
    records, _ = replay(planted_core(TRUTH, ServingConfig()), gangs(11, concurrency=4))
    by_id = {record.request_id: record for record in records}
    rows = [by_id[f"r{i}"] for i in range(11)]

    for first in (0, 4):
        ended = max(record.end_s for record in rows[first : first + 4])
        assert {record.sent_s for record in rows[first + 4 : first + 8]} == {ended}


def test_static_batches_waste_what_their_longest_answer_takes() -> None:
    """Mean 25, longest 40: a closed loop on the same requests is about 1.6 times as fast."""
    load = gangs(32, concurrency=4)
    loop = replace(load, schedule=replace(load.schedule, gang=False))
    ratio = throughput(TRUTH, ServingConfig(), loop) / throughput(TRUTH, ServingConfig(), load)

    assert 1.35 < ratio < 1.65


def test_a_client_that_holds_requests_back_shows_in_the_engine() -> None:
    """Eight are in flight for the client, two run, none waits in the engine."""
    narrow = replace(TRUTH, client_limit=2)
    records, counters = replay(
        planted_core(narrow, ServingConfig()), plan(16, concurrency=8, tokens=20)
    )
    span_s = max(record.end_s for record in records)

    assert (counters.peak_running, counters.peak_waiting) == (2, 0)
    assert sum(record.e2e_s for record in records) / span_s > 5


def test_only_the_planted_arithmetic_changes_tokens() -> None:
    """Greedy answers leave the base's at a flip for good, forced ones at the flips only."""
    truth = replace(TRUTH, flip_rates={"int8": 0.1})
    prompts = [(place, 5, 7) for place in range(100)]
    plain = [greedy_ids(truth, "bfloat16", prompt, 40) for prompt in prompts]
    greedy = [greedy_ids(truth, "int8", prompt, 40) for prompt in prompts]
    forced = [
        likely_ids(truth, "int8", prompt, given)
        for prompt, given in zip(prompts, plain, strict=True)
    ]
    agreed = sum(
        mine == theirs
        for one, other in zip(forced, plain, strict=True)
        for mine, theirs in zip(one, other, strict=True)
    )

    assert agreed / 4000 == pytest.approx(0.9, abs=0.02)
    assert sum(mine == theirs for mine, theirs in zip(greedy, plain, strict=True)) < 10
    assert [greedy_ids(truth, "int8", prompt, 9) for prompt in prompts] == [a[:9] for a in greedy]


def test_forcing_an_engine_to_its_own_answer_changes_nothing() -> None:
    """Its most likely token is what it says, whatever its arithmetic."""
    truth = replace(TRUTH, flip_rates={"int8": 0.3})
    own = greedy_ids(truth, "int8", (1, 2, 3), 50)

    assert likely_ids(truth, "int8", (1, 2, 3), own) == own


def test_a_truth_is_read_from_its_file_form() -> None:
    """Tests write it as JSON; a misspelt name is an error, not a default."""
    truth = read_truth({"acceptance": [{"contains": "copy", "per_position": [0.8]}], "noise": 0.1})

    assert truth.acceptance[0].coverage == 1.0
    assert truth.noise == 0.1
    with pytest.raises(ValueError, match="nosie"):
        read_truth({"nosie": 0.1})
