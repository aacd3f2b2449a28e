"""When an engine with requests counts as hung."""

from dataclasses import replace

from probes.vllm.metrics import EngineSnapshot
from probes.vllm.watchdog import FRUITLESS, Progress

IDLE = EngineSnapshot(
    totals={
        "vllm:generation_tokens_total": 100.0,
        "vllm:prompt_tokens_total": 50.0,
        "vllm:iteration_tokens_total_count": 10.0,
    },
    accepted_per_position=(),
    kv_usage=0.0,
    running=0,
    waiting=0,
    cache_info={},
)
RUNNING = replace(IDLE, running=2)


def stepped(snapshot: EngineSnapshot, *, steps: float, tokens: float) -> EngineSnapshot:
    """The snapshot after so many more steps and tokens."""
    totals = dict(snapshot.totals)
    totals["vllm:iteration_tokens_total_count"] += steps
    totals["vllm:generation_tokens_total"] += tokens
    return replace(snapshot, totals=totals)


def test_an_idle_engine_is_never_hung() -> None:
    """Nothing to do is no hang, however long."""
    progress = Progress(limit_s=10)

    assert all(progress.observe(IDLE, now_s=at) is None for at in (0.0, 100.0, 1000.0))


def test_requests_without_a_step_are_a_hang_after_the_limit() -> None:
    """The reason names how long and how many."""
    progress = Progress(limit_s=10)
    early = [progress.observe(RUNNING, now_s=at) for at in (0.0, 5.0, 9.9)]
    reason = progress.observe(RUNNING, now_s=10.0)

    assert early == [None, None, None]
    assert reason == "no step and no token for 10 s with 2 requests in the engine"


def test_every_token_starts_the_limit_anew() -> None:
    """A slow engine is not a hung one."""
    progress = Progress(limit_s=10)
    seen = [
        progress.observe(stepped(RUNNING, steps=at, tokens=at), now_s=9.0 * at) for at in range(20)
    ]

    assert seen == [None] * 20


def test_a_core_that_took_no_request_in_is_hung_while_requests_are_out() -> None:
    """Its gauges say 0 then: only the client knows."""
    silent, asked = Progress(limit_s=10), Progress(limit_s=10)

    for at in (0.0, 20.0):
        assert silent.observe(IDLE, now_s=at) is None
    assert asked.observe(IDLE, now_s=0.0, busy=True) is None
    assert asked.observe(IDLE, now_s=20.0, busy=True) is not None


def test_steps_without_tokens_are_waited_for_longer() -> None:
    """A long prompt takes many steps; endless preemption never ends."""
    progress = Progress(limit_s=10)
    last = None
    for at in range(int(FRUITLESS * 10) + 1):
        last = progress.observe(stepped(RUNNING, steps=at, tokens=0), now_s=float(at))
        if at < FRUITLESS * 10:
            assert last is None

    assert last is not None
    assert last.startswith("steps, but no token for 40 s")


def test_counters_that_do_not_answer_are_a_hang_of_the_front_end() -> None:
    """One answer in between and it counts from the start again."""
    progress = Progress(limit_s=10)

    assert progress.observe(None, now_s=0.0) is None
    assert progress.observe(RUNNING, now_s=8.0) is None
    assert progress.observe(None, now_s=9.0) is None
    assert progress.observe(None, now_s=18.0) is None
    assert progress.observe(None, now_s=19.0) == "/metrics did not answer for 10 s"


def test_an_engine_that_counts_no_steps_is_judged_by_its_tokens() -> None:
    """Older engines do not export the histogram."""
    totals = {name: value for name, value in RUNNING.totals.items() if "iteration" not in name}
    progress = Progress(limit_s=10)
    progress.observe(replace(RUNNING, totals=totals), now_s=0.0)

    assert progress.observe(replace(RUNNING, totals=totals), now_s=10.0) is not None
