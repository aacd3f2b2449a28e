"""Requests made of token ids, for tests of what needs no text."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.traffic.reuse.tally import BlockTally, Reuse
from advisor.traffic.trace import Request, RequestKind

Ids = Sequence[int]


def array(ids: Ids) -> NDArray[np.int32]:
    """Token ids as the tallies take them."""
    return np.asarray(ids, dtype=np.int32)


def row(place: int, **values: Any) -> Request:
    """A request without text."""
    return Request(id=f"r{place}", index=place, line=place + 1, kind=RequestKind.LENGTHS, **values)


def reuse_of(
    prompts: Sequence[Ids],
    block_size: int,
    *,
    outputs: Sequence[Ids] | None = None,
    classes: Sequence[str | None] | None = None,
) -> Reuse:
    """Prefix reuse of prompts in order of arrival."""
    tally = BlockTally(block_size)
    for place, prompt in enumerate(prompts):
        tally.add(row(place), array(prompt), None if outputs is None else array(outputs[place]))
    lengths = np.array([len(prompt) for prompt in prompts])
    return tally.finish(range(len(prompts)), classes or [None] * len(prompts), lengths)
