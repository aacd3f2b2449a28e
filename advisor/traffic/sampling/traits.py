"""What a subset of traffic is to keep of the whole, as codes of bins, and how far it is from it."""

from dataclasses import dataclass

import numpy as np

from advisor.errors import InvalidInput
from advisor.traffic.facts import Codes, Facts, Floats, Integers
from advisor.traffic.figures import SubsetDistance
from advisor.traffic.reuse.kinship import Chains, Places, hit_blocks, passes

# Quarters, and the longest twentieth: it is what limits see.
LENGTH_EDGES = (0.25, 0.5, 0.75, 0.95)
HIT_EDGES = (0.0, 0.25, 0.5, 0.75)
PREFIX_GROUPS = 8
GROUP_SHARE = 0.02
_MIN_FOR_VARIATION = 3
_UNKNOWN = -1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Traits:
    """Of every request in order of arrival: what subsets keep.

    Counts and codes are -1, times NaN where not known; `session` numbers sessions. `chains` are
    the blocks of the prompts; without them `heads` and `content` (hashes, 0 without text) say what
    is repeated.
    """

    arrival_s: Floats
    prompt_tokens: Integers
    output_tokens: Integers
    classes: Codes
    session: Codes
    chains: Chains | None = None
    heads: Integers | None = None
    content: Integers | None = None

    def __post_init__(self) -> None:
        if self.chains is not None and len(self.chains) != len(self.arrival_s):
            raise InvalidInput("chains", "not those of these requests")

    @classmethod
    def of(cls, facts: Facts, chains: Chains | None) -> "Traits":
        """From the columns of an upload."""
        return cls(
            arrival_s=facts.arrival_s,
            prompt_tokens=facts.prompt_tokens,
            output_tokens=facts.output_tokens,
            classes=facts.label,
            session=facts.session,
            chains=chains,
            heads=facts.head.view(np.int64) if facts.head.any() else None,
            content=facts.content.view(np.int64) if facts.content.any() else None,
        )

    def __len__(self) -> int:
        return len(self.arrival_s)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bins:
    """The whole upload in bins: a code per request and kind. `reuse` is None where not known."""

    traits: Traits
    lengths: Codes
    classes: Codes
    reuse: Codes | None
    groups: Codes | None

    @classmethod
    def of(cls, traits: Traits) -> "Bins":
        """Bins whose edges are quantiles of the whole."""
        prompt, output = _length_code(traits.prompt_tokens), _length_code(traits.output_tokens)
        groups = _prefix_groups(traits)
        everyone = np.arange(len(traits))
        return cls(
            traits=traits,
            lengths=(prompt * (len(LENGTH_EDGES) + 2) + output).astype(np.int32),
            classes=(traits.classes - min(0, int(traits.classes.min(initial=0)))).astype(np.int32),
            reuse=None if groups is None else _reuse_code(traits, groups, everyone),
            groups=groups,
        )

    def distance(self, places: Places, arrivals_s: Floats | None) -> SubsetDistance:
        """How far the requests at `places` are from all; times None: they are sent without."""
        order = np.sort(places)
        lengths = _variation_distance(self.lengths, self.lengths[order])
        classes = _variation_distance(self.classes, self.classes[order])
        reuse = None
        if self.reuse is not None and self.groups is not None:
            own = _reuse_code(self.traits, self.groups, order)
            reuse = _variation_distance(self.reuse, own)
        burstiness = None
        if arrivals_s is not None and (whole := gap_variation(self.traits.arrival_s)) is not None:
            burstiness = _relative(gap_variation(arrivals_s), whole)
        known = [part for part in (lengths, classes, reuse, burstiness) if part is not None]
        return SubsetDistance(
            requests=len(places),
            of=len(self.traits),
            lengths=lengths,
            reuse=reuse,
            classes=classes,
            burstiness=burstiness,
            total=max(known),
        )


def gap_variation(arrivals_s: Floats) -> float | None:
    """Standard deviation over mean of the gaps (handbook 5.2); None below three times."""
    times = np.sort(arrivals_s[np.isfinite(arrivals_s)])
    if len(times) < _MIN_FOR_VARIATION or times[-1] <= times[0]:
        return None
    gaps = np.diff(times)
    return float(gaps.std() / gaps.mean())


def _relative(found: float | None, whole: float) -> float:
    if found is None:
        return 1.0
    largest = max(found, whole)
    return abs(found - whole) / largest if largest else 0.0


def _variation_distance(whole: Codes, part: Codes) -> float:
    """Half the sum of the differences of the shares."""
    if not len(part):
        return 1.0
    bins = int(max(whole.max(), part.max())) + 1
    shares = np.bincount(whole, minlength=bins) / len(whole)
    return float(np.abs(shares - np.bincount(part, minlength=bins) / len(part)).sum() / 2)


def _length_code(tokens: Integers) -> Integers:
    """0 where not known, else 1 + the bin by the quantiles of the known ones."""
    known = tokens[tokens >= 0]
    if not len(known):
        return np.zeros(len(tokens), dtype=np.int64)
    edges = np.quantile(known, LENGTH_EDGES)
    codes: Integers = np.where(tokens < 0, 0, 1 + np.searchsorted(edges, tokens, side="left"))
    return codes


def _prefix_groups(traits: Traits) -> Codes | None:
    """The common beginning of every prompt: the largest `PREFIX_GROUPS` by number, else none.

    It is the deepest block that `GROUP_SHARE` of the requests have (two at least).
    """
    if traits.chains is not None:
        chains = traits.chains
        deep = passes(chains) >= max(2, GROUP_SHARE * len(chains))
        depth = np.zeros(len(chains), dtype=np.int64)
        np.add.at(depth, chains.rows, deep)
        names = np.zeros(len(chains), dtype=np.int64)
        has = depth > 0
        ends = chains.offsets[:-1][has] + depth[has] - 1
        names[has] = chains.values[ends].view(np.int64)
    elif traits.heads is not None:
        names = traits.heads
    elif traits.content is not None:
        return np.zeros(len(traits), dtype=np.int32)
    else:
        return None
    known, counts = np.unique(names[names != 0], return_counts=True)
    largest = known[np.argsort(-counts, kind="stable")[:PREFIX_GROUPS]]
    codes = np.zeros(len(names), dtype=np.int32)
    for code, name in enumerate(largest, start=1):
        codes[names == name] = code
    return codes


def _reuse_code(traits: Traits, groups: Codes, places: Places) -> Codes:
    """Prefix group and how much a replay of just these, in this order, finds in a large cache."""
    if traits.chains is not None:
        chains = traits.chains.take(places)
        share = hit_blocks(chains) / np.maximum(chains.blocks, 1)
        level = np.searchsorted(HIT_EDGES, share, side="left")
    else:
        level = _repeated(traits.heads, places) + _repeated(traits.content, places)
    return (groups[places] * (len(HIT_EDGES) + 1) + level).astype(np.int32)


def _repeated(hashes: Integers | None, places: Places) -> Integers:
    """1 where an earlier one of these has the same text, else 0."""
    if hashes is None:
        return np.zeros(len(places), dtype=np.int64)
    found = hashes[places]
    _, first, back = np.unique(found, return_index=True, return_inverse=True)
    again: Integers = ((first[back] < np.arange(len(found))) & (found != 0)).astype(np.int64)
    return again
