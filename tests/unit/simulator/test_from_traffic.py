"""Loads from traffic: what is kept, in which order, and which blocks are shared."""

import numpy as np
import pytest

from advisor.errors import InvalidInput
from advisor.simulator.from_traffic import FILE_IDS, TOKENS, LoadTally, TrafficLoad
from advisor.traffic.trace import Request, RequestKind, TokenColumns


def lengths(index: int, **more: object) -> Request:
    held = {"prompt_tokens": 40, "output_tokens": 5, "arrival_s": float(index), **more}
    return Request(
        id=str(index), index=index, line=index + 1, kind=RequestKind.LENGTHS, **held  # type: ignore[arg-type]
    )  # fmt: skip


def tallied(requests: list[Request], size: int = 16, **options: object) -> TrafficLoad:
    tally = LoadTally(size, file_block_tokens=16)
    tally.add(requests, None)
    return tally.finish(**options)  # type: ignore[arg-type]


def test_requests_of_unknown_length_are_left_out_and_counted() -> None:
    """A simulation cannot guess them."""
    found = tallied(
        [lengths(0), lengths(1, prompt_tokens=None), lengths(2, output_tokens=None), lengths(3)]
    )

    assert len(found.load) == 2
    assert found.left_out == {
        "without a known prompt length": 1,
        "without a known output length": 1,
    }


def test_a_rate_divides_all_gaps() -> None:
    """Twice the pace, half the time."""
    found = tallied([lengths(0), lengths(4)], rate=2.0)

    assert found.load.arrival_s.tolist() == [0.0, 2.0]


def test_requests_come_in_the_order_of_their_times() -> None:
    """Whatever the order of the file."""
    found = tallied([lengths(3, prompt_tokens=7), lengths(1, prompt_tokens=9)])

    assert found.load.prompt_tokens.tolist() == [9, 7]


def test_no_times_need_a_closed_loop() -> None:
    """An open loop of requests without times is refused, with the way out."""
    untimed = [lengths(0, arrival_s=None), lengths(1, arrival_s=None)]

    with pytest.raises(InvalidInput, match="--concurrency"):
        tallied(untimed)
    assert tallied(untimed, concurrency=2).load.concurrency == 2


def test_nothing_of_known_length_is_an_error() -> None:
    """Not an empty simulation."""
    with pytest.raises(InvalidInput, match="known lengths"):
        tallied([lengths(0, output_tokens=None)])


@pytest.mark.parametrize("size,blocks", [(16, 2), (8, 4), (32, 1)])
def test_block_ids_of_the_file_are_cut_to_the_engines_blocks(size: int, blocks: int) -> None:
    """Ids of 16 tokens as halves, as they are, or as pairs; one that is not full is none."""
    found = tallied(
        [lengths(0, block_ids=(7, 8, 9)), lengths(1, block_ids=(7, 8, 5))], size=size
    ).load
    assert found.block_ids is not None
    assert found.block_starts is not None

    first, second = (
        found.block_ids[found.block_starts[i] : found.block_starts[i + 1]] for i in (0, 1)
    )
    assert len(first) == blocks
    assert first.tolist() == second.tolist()
    assert len(set(first.tolist())) == blocks


def test_sizes_that_do_not_divide_share_nothing() -> None:
    """Blocks of 24 tokens cannot be told from ids of 16."""
    found = tallied([lengths(0, block_ids=(7, 8)), lengths(1, block_ids=(7, 8))], size=24)

    assert found.sharing is None
    assert found.load.block_ids is None


def test_tokens_count_before_the_files_ids() -> None:
    """Prompt and answer are chained together, as the engine caches both."""
    tokens = TokenColumns.of(
        tokenizer_digest="t",
        template_digest="t",
        prompts=[list(range(40)), list(range(40))],
        outputs=[list(range(40, 64)), None],
    )
    tally = LoadTally(16)
    tally.add([lengths(0, output_tokens=24), lengths(1)], tokens)
    found = tally.finish()

    assert found.sharing == TOKENS
    assert found.load.block_starts is not None
    assert np.diff(found.load.block_starts).tolist() == [4, 2]


def test_the_source_of_sharing_is_named() -> None:
    """Ids of the file, or nothing."""
    assert tallied([lengths(0, block_ids=(1, 2))]).sharing == FILE_IDS
    assert tallied([lengths(0)]).sharing is None
