"""The requests that a simulation serves, as columns."""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from advisor.errors import InvalidInput

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Requests in order of arrival; arrays of one length n.

    `arrival_s` starts anywhere and does not fall. `concurrency` None sends each request at its
    arrival (open loop); a number keeps so many in flight, in order, whatever the arrivals (closed
    loop). `block_ids[block_starts[i]:block_starts[i + 1]]` are chained identifiers of the whole
    blocks of prompt and output of request i: equal identifiers are equal prefixes. Where a request
    lists fewer blocks than it has, the rest is its own. None: nothing is shared.
    `accepted[accepted_starts[i]:accepted_starts[i + 1]]` are tokens that successive decode steps of
    request i yield with drafts (1 to 1 + k); None draws them from the settings.
    """

    arrival_s: Floats
    prompt_tokens: Ints
    output_tokens: Ints
    priority: Ints | None = None
    concurrency: int | None = None
    block_ids: Ints | None = None
    block_starts: Ints | None = None
    accepted: Ints | None = None
    accepted_starts: Ints | None = None

    def __post_init__(self) -> None:
        count = len(self.arrival_s)
        if len(self.prompt_tokens) != count or len(self.output_tokens) != count:
            raise InvalidInput("load", "has columns of different length")
        if count and bool((np.diff(self.arrival_s) < 0).any()):
            raise InvalidInput("load.arrival_s", "falls")
        if count and (int(self.prompt_tokens.min()) < 1 or int(self.output_tokens.min()) < 1):
            raise InvalidInput("load", "every request has a prompt token and an output token")
        if self.concurrency is not None and self.concurrency < 1:
            raise InvalidInput("load.concurrency", f"{self.concurrency} is below 1")

    def __len__(self) -> int:
        return len(self.arrival_s)
