"""Workloads whose schedules are recorded; plain values, so that every interpreter reads them."""

import random
from typing import Any

SETTINGS: dict[str, Any] = {
    "num_blocks": 101,
    "max_num_seqs": 8,
    "max_num_batched_tokens": 128,
    "max_model_len": 1024,
    "block_size": 16,
    "enable_prefix_caching": True,
    "scheduling_policy": "fcfs",
    "long_prefill_token_threshold": 0,
    "enable_chunked_prefill": True,
    "watermark": 0.0,
    "async_scheduling": False,
    "speculation": None,
    "groups": [{"kind": "full", "window": None, "state_blocks": 1}],
}
FULL = {"kind": "full", "window": None, "state_blocks": 1}


def prompt_tokens(parts: list[list[int]]) -> list[int]:
    """Tokens of a prompt: ``[[a, n], ...]`` is n tokens of the stream a, and so on."""
    return [(a * 131 + i * 17) % 800 + 3 for a, n in parts for i in range(n)]


def window(tokens: int) -> dict[str, Any]:
    return {"kind": "sliding_window", "window": tokens, "state_blocks": 1}


def state(blocks: int) -> dict[str, Any]:
    return {"kind": "mamba", "window": None, "state_blocks": blocks}


def drafts(
    count: int, *, method: str = "ngram", schedule: list[list[int]] | None = None
) -> dict[str, Any]:
    """Drafts of `count`; a draft model keeps slots ahead and one more position per request."""
    model = method == "draft_model"
    return {
        "num_speculative_tokens": count,
        "method": method,
        "schedule": schedule or [],
        "lookahead": count if model else 0,
        "draft_slots": 1 if model else 0,
    }


def request(
    index: int,
    prompt: list[list[int]],
    output: int,
    *,
    step: int = 0,
    priority: int = 0,
    accepted: list[int] | None = None,
) -> dict[str, Any]:
    row: dict[str, Any] = {
        "id": f"r{index}",
        "prompt": prompt,
        "output": output,
        "priority": priority,
        "step": step,
    }
    return row if accepted is None else {**row, "accepted": accepted}


def case(name: str, requests: list[dict[str, Any]], **settings: Any) -> dict[str, Any]:
    return {"name": name, "settings": {**SETTINGS, **settings}, "requests": requests}


def mixed(
    seed: int,
    count: int,
    *,
    prompt: tuple[int, int] = (5, 120),
    output: tuple[int, int] = (1, 50),
    gap: int = 0,
    yields: tuple[int, int] | None = None,
    priorities: int = 1,
    shared: float = 0.5,
) -> list[dict[str, Any]]:
    """Requests of random lengths; `shared` of them begin with a piece of a common stream."""
    draw = random.Random(seed)  # noqa: S311  a workload, not a secret
    rows, step = [], 0
    for index in range(count):
        length = draw.randint(*prompt)
        common = draw.randint(0, length) if draw.random() < shared else 0
        parts = [[draw.randint(0, 1), common], [50 + index, length - common]]
        tokens = draw.randint(*output)
        accepted = [draw.randint(*yields) for _ in range(tokens)] if yields else None
        rows.append(
            request(
                index,
                [part for part in parts if part[1]],
                tokens,
                step=step,
                priority=draw.randrange(priorities),
                accepted=accepted,
            )
        )
        step += draw.randint(0, gap)
    return rows


def speculation() -> list[dict[str, Any]]:
    short = [request(i, [[i, 40]], 30, accepted=[1 + (i + j) % 4 for j in range(30)])
             for i in range(4)]  # fmt: skip
    ladder = [[1, 2, 4], [3, 4, 2], [5, 64, 0]]
    return [
        case("k3", short, speculation=drafts(3)),
        case("k1 tight budget", mixed(1, 6, yields=(1, 2)), max_num_batched_tokens=32,
             speculation=drafts(1)),
        case("k4 budget cuts drafts", mixed(2, 8, yields=(1, 5)), max_num_batched_tokens=24,
             speculation=drafts(4)),
        case("k3 preemption", mixed(3, 6, prompt=(20, 60), output=(30, 60), yields=(1, 4)),
             num_blocks=16, speculation=drafts(3)),
        case("k2 preemption without cache",
             mixed(4, 6, prompt=(20, 60), output=(30, 60), yields=(1, 3)),
             num_blocks=14, enable_prefix_caching=False, speculation=drafts(2)),
        case("k4 priority preemption",
             mixed(5, 7, prompt=(20, 60), output=(20, 60), yields=(1, 5), priorities=3, gap=4),
             num_blocks=15, scheduling_policy="priority", speculation=drafts(4)),
        case("k3 end of the model",
             mixed(6, 3, prompt=(60, 100), output=(60, 60), yields=(3, 4)),
             max_model_len=128, speculation=drafts(3)),
        case("schedule by batch size", mixed(7, 8, output=(10, 40), yields=(1, 5), gap=5),
             speculation=drafts(4, schedule=ladder)),
        case("k3 with misses", mixed(8, 6, output=(10, 40), yields=(0, 4), gap=2),
             speculation=drafts(3)),
        case("k3 arrivals", mixed(9, 10, yields=(1, 4), gap=6), max_num_seqs=4,
             speculation=drafts(3)),
        case("draft model k3", mixed(10, 8, yields=(1, 4), gap=2), max_num_batched_tokens=48,
             speculation=drafts(3, method="draft_model")),
        case("draft model k4 preemption",
             mixed(11, 6, prompt=(20, 60), output=(30, 60), yields=(1, 5)),
             num_blocks=17, speculation=drafts(4, method="draft_model")),
    ]  # fmt: skip


def hybrid() -> list[dict[str, Any]]:
    long: dict[str, Any] = {"prompt": (30, 200), "output": (10, 60)}
    return [
        case("full and window", mixed(20, 6, **long, shared=1.0, gap=9), groups=[FULL, window(48)]),
        case("full and window without cache", mixed(20, 6, **long), groups=[FULL, window(48)],
             enable_prefix_caching=False),
        case("two windows and full", mixed(21, 6, **long, gap=9, shared=1.0),
             groups=[window(32), window(32), FULL]),
        case("window preemption", mixed(22, 6, prompt=(40, 80), output=(40, 60)),
             groups=[FULL, window(32)], num_blocks=26),
        case("window preemption without cache", mixed(23, 6, prompt=(40, 80), output=(40, 60)),
             groups=[FULL, window(32)], num_blocks=26, enable_prefix_caching=False),
        case("window alone", mixed(24, 5, **long, gap=9, shared=1.0), groups=[window(40)]),
        case("window and drafts", mixed(25, 5, **long, yields=(1, 4)),
             groups=[FULL, window(48)], speculation=drafts(3)),
        case("full and state", mixed(26, 6, **long, gap=2), groups=[FULL, state(1)],
             enable_prefix_caching=False),
        case("state preemption", mixed(27, 6, prompt=(40, 80), output=(40, 60)),
             groups=[FULL, state(1)], num_blocks=20, enable_prefix_caching=False),
        case("state and drafts", mixed(28, 5, **long, yields=(1, 3)), groups=[FULL, state(3)],
             enable_prefix_caching=False, speculation=drafts(2)),
        case("aligned state", mixed(29, 6, **long, gap=9, shared=1.0), groups=[FULL, state(2)]),
        case("aligned state preemption", mixed(30, 6, prompt=(40, 80), output=(40, 60)),
             groups=[FULL, state(2)], num_blocks=22),
    ]  # fmt: skip


def ahead() -> list[dict[str, Any]]:
    return [
        case("one step ahead", mixed(40, 4, output=(1, 12))),
        case("slots full", mixed(41, 9, output=(1, 20)), max_num_seqs=3),
        case("chunks", mixed(42, 6, prompt=(60, 200), output=(2, 30)), max_num_batched_tokens=48),
        case("ahead arrivals", mixed(43, 8, output=(6, 30), gap=3), max_num_seqs=4),
        case("ahead preemption", mixed(44, 6, prompt=(20, 60), output=(30, 60)), num_blocks=14),
        case("ahead preemption without cache", mixed(45, 6, prompt=(20, 60), output=(30, 60)),
             num_blocks=14, enable_prefix_caching=False),
        case("ahead window", mixed(46, 5, prompt=(30, 200), output=(10, 40)),
             groups=[FULL, window(48)]),
        case("ahead drafts", mixed(47, 5, output=(10, 40), yields=(1, 4)),
             speculation=drafts(3, method="draft_model")),
        case("ahead drafts preemption",
             mixed(48, 6, prompt=(20, 60), output=(30, 60), yields=(1, 4)), num_blocks=18,
             speculation=drafts(3, method="draft_model")),
    ]  # fmt: skip


def admission() -> list[dict[str, Any]]:
    return [
        case("arrivals", mixed(60, 12, gap=5, shared=0.9)),
        case("idle gaps", mixed(61, 6, output=(1, 5), gap=40)),
        case("chunked prefill off", mixed(62, 8, prompt=(20, 120), gap=1),
             enable_chunked_prefill=False, max_model_len=128),
        case("chunked prefill off, full", mixed(63, 8, prompt=(20, 60), output=(20, 60), gap=2),
             enable_chunked_prefill=False, num_blocks=14, max_model_len=128),
        case("watermark", mixed(64, 8, prompt=(20, 60), output=(20, 60)), num_blocks=20,
             watermark=0.2),
        case("watermark and priority",
             mixed(65, 8, prompt=(20, 60), output=(20, 60), priorities=3, gap=4), num_blocks=18,
             watermark=0.1, scheduling_policy="priority"),
        case("threshold", mixed(66, 6, prompt=(80, 250), output=(5, 20), gap=3),
             long_prefill_token_threshold=40),
        case("blocks of 32", mixed(67, 8, gap=2), block_size=32, num_blocks=20),
    ]  # fmt: skip


def duplicates() -> list[dict[str, Any]]:
    """Blocks computed twice, by requests that were admitted before either was cached."""
    alike = ((70, 0, 11), (1, 11, 1), (26, 13, 37), (57, 28, 27), (93, 0, 39), (65, 19, 20))
    rows = [
        request(index, [part for part in ([1, same], [50 + index, own]) if part[1]], output)
        for index, (same, own, output) in enumerate(alike)
    ]
    return [
        case("duplicates", rows, num_blocks=13, max_num_seqs=5, long_prefill_token_threshold=32)
    ]


def _ahead(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**one, "settings": {**one["settings"], "async_scheduling": True}} for one in cases]


FILES = {
    "speculation": speculation(),
    "hybrid": hybrid(),
    "async": _ahead(ahead()),
    "admission": admission(),
    "duplicates": duplicates(),
}
