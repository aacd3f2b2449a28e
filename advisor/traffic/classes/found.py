"""Classes of requests: found where a file names none, and described in words."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.traffic.classes.valleys import split_at_valleys
from advisor.traffic.classes.wording import CHARS_A_TOKEN, described
from advisor.traffic.facts import UNKNOWN, Codes, Facts
from advisor.traffic.figures import RequestClass

UNLABELLED = "unlabelled"
MOST_CLASSES = 8
# A class has at least this share of the requests, and this many.
LEAST_SHARE = 0.05
LEAST_REQUESTS = 10
# Added before the logarithm: one token more or less means little.
_OFFSET = 10.0
_MOSTLY = 0.5

Places = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Clustering:
    """``codes[i]`` is the place in `classes` of request i; the largest class comes first."""

    codes: Codes
    classes: tuple[RequestClass, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each request's class: its `Request.cluster`."""
        known = [item.name for item in self.classes]
        return tuple(known[code] for code in self.codes)


def cluster(
    facts: Facts, *, heads_minimum: float = LEAST_SHARE, seed: int = 0, split: bool = True
) -> Clustering:
    """Classes by what requests ask for and by their lengths; one where they are all alike.

    First come properties that a request has or has not: chat or completion, structured output,
    tools, images, code, and a system prompt that at least the share `heads_minimum` has. Then the
    lengths of each such group are split at valleys of their density (`classes.valleys`).
    Characters / 4 stand in for unknown prompt counts. Equal facts and seeds give equal classes.
    Without `split` all are one class, in words.
    """
    if not len(facts):
        return Clustering(codes=np.empty(0, dtype=np.int32), classes=())
    codes = np.zeros(len(facts), dtype=np.int32)
    if split:
        codes = _codes(facts, heads_minimum, seed)
    return Clustering(codes=codes, classes=described(facts, codes, None, origin="found"))


def _codes(facts: Facts, heads_minimum: float, seed: int) -> Codes:
    least = max(LEAST_REQUESTS, int(np.ceil(LEAST_SHARE * len(facts))))
    rng = np.random.default_rng(seed)
    points = _points(facts)
    codes = np.zeros(len(facts), dtype=np.int32)
    made = 0
    for members in _groups(facts, heads_minimum, least):
        if points.shape[1]:
            held = points if len(members) == len(points) else points[members]
            codes[members] = made + split_at_valleys(held, least=least, rng=rng)
        else:
            codes[members] = made
        made = int(codes[members].max()) + 1
    return _by_size(_at_most(codes, points, MOST_CLASSES))


def labelled(facts: Facts) -> tuple[RequestClass, ...]:
    """The classes that the requests have already, in words; none without any."""
    if not facts.labels:
        return ()
    names: tuple[str, ...] = facts.labels
    codes = facts.label
    if (codes == UNKNOWN).any():
        codes = np.where(codes == UNKNOWN, len(names), codes).astype(np.int32)
        names = (*names, UNLABELLED)
    found = described(facts, codes, names, origin="found" if facts.clustered else "label")
    return tuple(sorted(found, key=lambda item: (-item.requests, item.name)))


def _points(facts: Facts) -> NDArray[np.float64]:
    """Log lengths of prompt and answer, shape ``[requests, 0 to 2]``; a length nobody knows lacks.

    A request whose own length is not known is put in the middle.
    """
    stand_in = np.where(facts.text_chars >= 0, facts.text_chars // CHARS_A_TOKEN, UNKNOWN)
    prompts = np.where(facts.prompt_tokens >= 0, facts.prompt_tokens, stand_in)
    columns = []
    for lengths in (prompts, facts.output_tokens):
        known = lengths >= 0
        if not known.any():
            continue
        logs = np.log(np.maximum(lengths, 0) + _OFFSET)
        if not known.all():
            logs[~known] = np.median(logs[known])
        columns.append(logs)
    return np.column_stack(columns) if columns else np.empty((len(facts), 0))


def _groups(facts: Facts, heads_minimum: float, least: int) -> list[Places]:
    """Places of the requests with equal properties; small groups join the one most like them."""
    columns = _properties(facts, _heads(facts.head, heads_minimum))
    telling = [column for column in columns if column.min() != column.max()]
    if not telling:
        return [np.arange(len(facts))]
    rows, group, sizes = np.unique(
        np.column_stack(telling), axis=0, return_inverse=True, return_counts=True
    )
    group = group.reshape(-1)
    large = np.flatnonzero(sizes >= least)
    if not len(large):
        return [np.arange(len(facts))]
    home = np.arange(len(rows))
    for small in np.flatnonzero(sizes < least):
        alike = (rows[large] == rows[small]).sum(axis=1)
        home[small] = large[np.lexsort((-sizes[large], -alike))[0]]
    group = home[group]
    return [np.flatnonzero(group == place) for place in large]


def _properties(facts: Facts, heads: Codes) -> tuple[NDArray[np.generic], ...]:
    """Columns that differ where requests differ in kind."""
    return (
        facts.kind,
        facts.structured > 0,
        facts.tools > 0,
        facts.images > 0,
        facts.code > _MOSTLY,
        heads,
    )


def _heads(heads: NDArray[np.uint64], minimum: float) -> Codes:
    """A number for each system prompt that many requests have, 0 for all others."""
    codes = np.zeros(len(heads), dtype=np.int32)
    if not heads.any():
        return codes
    known, group, times = np.unique(heads, return_inverse=True, return_counts=True)
    common = (times >= max(LEAST_REQUESTS, minimum * len(heads))) & (known != 0)
    numbers = np.where(common, np.cumsum(common), 0).astype(np.int32)
    return np.asarray(numbers[group.reshape(-1)], dtype=np.int32)


def _at_most(codes: Codes, points: NDArray[np.float64], most: int) -> Codes:
    """With the smallest classes merged into those of the most similar lengths."""
    found = codes.copy()
    while len(sizes := np.unique(found, return_counts=True)[1]) > most:
        names = np.unique(found)
        smallest = names[int(sizes.argmin())]
        others = names[names != smallest]
        if not points.shape[1]:
            nearest = others[0]
        else:
            centre = np.median(points[found == smallest], axis=0)
            gaps = [
                np.abs(np.median(points[found == other], axis=0) - centre).sum() for other in others
            ]
            nearest = others[int(np.argmin(gaps))]
        found[found == smallest] = nearest
    return found


def _by_size(codes: Codes) -> Codes:
    """Renumbered: the largest class is 0; of equal ones the first to appear."""
    known, first, group, sizes = np.unique(
        codes, return_index=True, return_inverse=True, return_counts=True
    )
    ranks = np.empty(len(known), dtype=np.int32)
    ranks[np.lexsort((first, -sizes))] = np.arange(len(known), dtype=np.int32)
    return np.asarray(ranks[group.reshape(-1)], dtype=np.int32)
