"""Suffix-style look-up: drafts from the request's own text and from earlier outputs.

After vLLM's method ``suffix`` (arctic-inference; Oliaro et al. 2024), approximated: see
`suffix_drafts`.
"""

import numpy as np

from advisor.traffic.drafting.drafts import Decoding, Drafts
from advisor.traffic.drafting.grams import NOWHERE, Integers, Texts, gram_ids, last_places

# vLLM's defaults (handbook 6.2): longest draft and longest match, and tokens drafted per token
# matched.
SUFFIX_TOKENS = 24
SPEC_FACTOR = 1.0
# Lengths of matches that are told apart; one between two of them counts as the shorter.
_MATCHES = (24, 16, 8, 6, 4, 3, 2, 1)


def suffix_drafts(texts: Texts, at: Decoding) -> Drafts:
    """Where the draft at every place begins, and how many tokens it may have.

    The longest match of the text so far wins, in the request's own text (prompt and output) or in
    the output of an earlier one; of several the latest, where the engine follows the most frequent
    continuation. A match of n tokens drafts at most n (`SPEC_FACTOR`).
    """
    span = int(texts.tokens.max(initial=0)) + 1
    own = gram_ids(texts.owner * span + texts.tokens, _MATCHES)
    shared = gram_ids(texts.tokens, _MATCHES)
    source = np.full(len(at.places), NOWHERE, dtype=np.int64)
    allowed = np.zeros(len(at.places), dtype=np.int64)
    for n in _MATCHES:
        begin = at.places - n
        open_ = np.flatnonzero((source == NOWHERE) & (begin >= at.starts))
        for earlier in (last_places(own[n]), _earlier_outputs(texts, shared[n], n)):
            here = open_[source[open_] == NOWHERE]
            found = earlier[begin[here]]
            here, found = here[found != NOWHERE], found[found != NOWHERE]
            source[here] = found + n
            # What is copied ends where its text ends, or with the text so far.
            ends = np.minimum(texts.ends[texts.owner[found]], at.places[here])
            allowed[here] = np.minimum(ends - found - n, int(SPEC_FACTOR * n))
    return Drafts(source, allowed)


def _earlier_outputs(texts: Texts, ids: Integers, n: int) -> Integers:
    """For every gram the latest equal one that stands in an output before, with a token behind."""
    if len(ids) == 0:
        return ids
    begin = np.arange(len(ids))
    owner = texts.owner[begin]
    offered = (begin >= texts.outputs[owner]) & (begin + n < texts.ends[owner])
    order = np.argsort(ids, kind="stable")
    # In an order by gram and place: the last offered one at or before each, then before each.
    last = np.maximum.accumulate(np.where(offered[order], begin, NOWHERE))
    before = np.concatenate([np.full(1, NOWHERE), last[:-1]])
    same = (before != NOWHERE) & (ids[order[before]] == ids[order])
    found = np.full(len(ids), NOWHERE, dtype=np.int64)
    found[order[same]] = order[before[same]]
    return found
