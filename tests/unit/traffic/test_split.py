"""What is kept back for the confirmation shares nothing with what the other loads replay."""

from dataclasses import replace

from advisor.traffic.sampling.sample import probe_subset
from advisor.traffic.sampling.split import groups_of, held_out
from advisor.traffic.trace import Request, TokenColumns
from tests.unit.traffic.rows import columns, texts


def upload(prompts: list[list[int]], **more: object) -> tuple[tuple[Request, ...], TokenColumns]:
    """Requests with these tokens and with texts that differ."""
    requests = tuple(
        replace(request, prompt=f"prompt {place}")
        for place, request in enumerate(texts(len(prompts), **more))
    )
    return requests, columns(prompts)


def documents(count: int, questions: int) -> list[list[int]]:
    """`questions` prompts about each of `count` documents of 200 tokens."""
    return [
        [*range(1000 * at, 1000 * at + 200), *range(900_000 + 50 * ask, 900_000 + 50 * ask + 40)]
        for at in range(count)
        for ask in range(questions)
    ]


def test_a_document_is_on_one_side_with_all_questions_about_it() -> None:
    """Twenty documents, three questions each."""
    requests, tokens = upload(documents(20, 3))
    held = held_out(requests, tokens, seed=1, max_prompt_tokens=1000)

    assert len(held) in {18, 21}
    assert {place // 3 for place in held}.isdisjoint(
        place // 3 for place in range(60) if place not in held
    )


def test_one_system_prompt_for_all_does_not_stop_the_split() -> None:
    """A third is held out although five sixths of every prompt are the same."""
    shared = list(range(500))
    requests, tokens = upload(
        [[*shared, *range(1000 * at, 1000 * at + 100)] for at in range(1, 61)]
    )

    assert len(held_out(requests, tokens, seed=1, max_prompt_tokens=1000)) == 20
    assert len(groups_of(requests, tokens)) == 60


def test_the_found_class_counts_where_the_file_names_none() -> None:
    """A third of every cluster is held out, and the probe has both."""
    requests, tokens = upload([[place] * 20 for place in range(60)])
    clustered = tuple(
        replace(request, cluster="long" if place < 12 else "short")
        for place, request in enumerate(requests)
    )
    held = held_out(clustered, tokens, seed=1, max_prompt_tokens=1000)
    probe = probe_subset(
        clustered, tokens, size=10, seed=1, max_prompt_tokens=1000, mean_prompt_limit=None
    )

    assert sum(place < 12 for place in held) == 4
    assert sum(place < 12 for place in probe.places) == 2
