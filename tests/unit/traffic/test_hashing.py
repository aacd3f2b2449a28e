"""Requests without text: hashes say what is shared and nothing else."""

import json

import numpy as np
import pytest

from advisor.errors import InvalidInput
from advisor.traffic.privacy.hashing import Stripper
from advisor.traffic.trace import Privacy, Request, RequestKind

BLOCK = 4


def chat(number: int, **fields: object) -> Request:
    """A request full of text."""
    held: dict[str, object] = {
        "messages": json.dumps([{"role": "user", "content": "the canary sings"}]),
        "tools": '[{"canary": 1}]',
        "response_format": '{"canary": 1}',
        "response": "the canary sang",
        "session": "canary",
        "source_id": "canary",
        "model": "canary",
        "label": "canary",
        "prompt_ids": (1, 2),
        "output_ids": (3,),
        "prompt_tokens": 70,
        "output_tokens": 80,
        "max_tokens": 90,
        "arrival_s": 1.5,
        "duration_s": 2.5,
        **fields,
    }
    return Request(
        id=f"r{number}",
        index=number,
        line=number + 1,
        kind=RequestKind.CHAT,
        **held,  # type: ignore[arg-type]
    )


def kept(privacy: Privacy, request: Request, prompt: list[int] | None, secret: bytes) -> Request:
    """What is stored of a request with these prompt tokens."""
    stripper = Stripper(secret, privacy, block_size=BLOCK)
    ids = None if prompt is None else np.array(prompt, dtype=np.int32)
    return stripper.stripped(stripper.unnamed(request), ids, None if ids is None else ids[:2])


@pytest.mark.parametrize("privacy", [Privacy.HASHED, Privacy.LENGTHS])
def test_no_text_is_left_but_counts_and_times(privacy: Privacy) -> None:
    """Not in any field; counts are the tokenizer's where it counted, else the file's."""
    counted = kept(privacy, chat(0), [5] * 9, b"s")
    reported = kept(privacy, chat(0), None, b"s")

    assert "canary" not in repr(counted) + repr(reported)
    assert counted.kind is RequestKind.LENGTHS
    assert (counted.prompt_ids, counted.output_ids) == (None, None)
    assert (counted.prompt_tokens, counted.output_tokens) == (9, 2)
    assert (reported.prompt_tokens, reported.output_tokens) == (70, 80)
    assert (counted.arrival_s, counted.duration_s, counted.max_tokens) == (1.5, 2.5, 90)


def test_equal_prefixes_have_equal_hashes_in_full_blocks() -> None:
    """A block is known with everything before it; a rest of a block has no hash."""
    first = kept(Privacy.HASHED, chat(0), [1, 2, 3, 4, 5, 6, 7, 8, 9], b"s").block_ids
    second = kept(Privacy.HASHED, chat(1), [1, 2, 3, 4, 5, 6, 7, 0], b"s").block_ids
    moved = kept(Privacy.HASHED, chat(2), [0, 0, 0, 0, 5, 6, 7, 8], b"s").block_ids

    assert first is not None
    assert second is not None
    assert moved is not None
    assert (len(first), len(second)) == (2, 2)
    assert first[0] == second[0]
    assert len({first[1], second[1], moved[1]}) == 3
    assert all(0 <= number < 1 << 63 for number in (*first, *second))


def test_hashes_say_nothing_across_uploads() -> None:
    """Another secret, other hashes: of blocks, of the file's block ids and of sessions."""
    blocks = [kept(Privacy.HASHED, chat(0), [1, 2, 3, 4], secret) for secret in (b"a", b"b")]
    own = [
        kept(Privacy.HASHED, chat(0, block_ids=(7, 8, 7)), None, secret) for secret in (b"a", b"b")
    ]

    assert blocks[0].block_ids != blocks[1].block_ids
    assert blocks[0].session != blocks[1].session
    assert own[0].block_ids != own[1].block_ids
    assert own[0].block_ids is not None
    assert own[0].block_ids[0] == own[0].block_ids[2] != 7


def test_lengths_keep_no_hash_of_a_block() -> None:
    """Not of tokens, and not the file's own."""
    assert kept(Privacy.LENGTHS, chat(0, block_ids=(7,)), [1] * 8, b"s").block_ids is None


def test_classes_and_sessions_stay_apart_without_their_names() -> None:
    """Statistics by class and by session survive."""
    stripper = Stripper(b"s", Privacy.LENGTHS, block_size=BLOCK)
    rows = [chat(0), chat(1, label="other", session="other"), chat(2)]
    first, second, third = [stripper.unnamed(row) for row in rows]

    assert (first.label, second.label, third.label) == ("class 1", "class 2", "class 1")
    assert first.session == third.session != second.session


@pytest.mark.parametrize("privacy", [Privacy.RAW, Privacy.REDACTED])
def test_a_mode_that_keeps_text_is_refused(privacy: Privacy) -> None:
    """Taking text away is not what it asks for."""
    with pytest.raises(InvalidInput, match="keeps text"):
        Stripper(b"s", privacy, block_size=BLOCK)
