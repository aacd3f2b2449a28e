"""Prefix sharing counted block by block without a hash: what the product's chains must give."""

from collections.abc import Sequence

from advisor.errors import InvalidInput
from advisor.traffic.figures import PrefixSharing
from advisor.traffic.reuse.prefix import share_of

Tokens = Sequence[int]


def cached_tokens(prompts: Sequence[Tokens], block_size: int) -> tuple[int, ...]:
    """Per prompt, in order of arrival, the tokens found in an unlimited cache of whole blocks.

    A block is known by its own tokens and everything before it. The lookup covers
    ``(n - 1) // block_size`` blocks of a prompt of n tokens, so the last token is always computed.
    Requests that arrive together share too: the engine hashes blocks when it allocates them.
    """
    if block_size < 1:
        raise InvalidInput("block_size", f"{block_size} is not at least 1")
    # The key is (number of the parent block, tokens): exact, where a hash could collide.
    known: dict[tuple[int, Tokens], int] = {}
    hits = []
    for prompt in prompts:
        parent = -1
        matched = 0
        usable = (len(prompt) - 1) // block_size
        for place in range(len(prompt) // block_size):
            key = (parent, tuple(prompt[place * block_size : (place + 1) * block_size]))
            found = known.get(key)
            if found is None:
                found = known[key] = len(known)
            elif place == matched < usable:
                matched += 1
            parent = found
        hits.append(matched * block_size)
    return tuple(hits)


def sharing(prompts: Sequence[Tokens], block_size: int) -> PrefixSharing | None:
    """Prefix sharing of prompts in order of arrival; None when there is nothing to share."""
    hits = cached_tokens(prompts, block_size)
    return share_of(hits, [len(prompt) for prompt in prompts], block_size)
