"""What an upload alone says, before anything is started: `TrafficTally` and `summarise`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from advisor.errors import InvalidInput
from advisor.traffic.classes.found import UNLABELLED, Clustering, cluster, labelled
from advisor.traffic.drafting.lookup import Lookups, LookupTally
from advisor.traffic.facts import (
    ESTIMATED,
    UNKNOWN,
    Facts,
    Integers,
    content_order,
    facts_of,
    join_facts,
)
from advisor.traffic.figures import (
    ClassSummary,
    LookupAcceptance,
    PrefixSharing,
    RequestClass,
    TrafficSummary,
)
from advisor.traffic.reuse.prefix import share_of
from advisor.traffic.reuse.tally import BlockTally, Reuse
from advisor.traffic.statistics.arrivals import arrivals
from advisor.traffic.statistics.gangs import static_speedup
from advisor.traffic.statistics.language import LanguageSample
from advisor.traffic.statistics.lengths import context_tokens, count_source, quantiles_of
from advisor.traffic.statistics.profile import fits, missing, profile, tick_warnings
from advisor.traffic.trace import Privacy, Request, TokenColumns, TraceReport

ALL = "all"
# Reported and own count differ this much only when they do not count the same thing.
_DISAGREEMENT = 2.0
# Static batches that the bound on continuous batching is stated for.
STATIC_BATCH = 4


class TrafficTally:
    """Adds up an upload part by part, in order of arrival; the parts are not held.

    `block_size` is the engine's KV block in tokens, `draft_lengths` those that n-gram drafts are
    replayed with (the main one first), `limits` further length limits to say the fit of.
    `block_tokens` is `TraceReport.block_tokens`. An upload without text can be added as columns.
    Without `find_classes` requests that carry no class are one: so it is for stored requests, whose
    classes were found when they were uploaded.
    """

    def __init__(
        self,
        *,
        block_size: int,
        draft_lengths: Sequence[int] = (4,),
        limits: Sequence[int] = (),
        block_tokens: int | None = None,
        find_classes: bool = True,
    ) -> None:
        self._find_classes = find_classes
        self._block_size = block_size
        self._draft_lengths = tuple(draft_lengths)
        self._limits = tuple(limits)
        self._facts: list[Facts] = []
        self._sessions: dict[str, int] = {}
        self._blocks = BlockTally(block_size, file_block_tokens=block_tokens)
        self._lookups = LookupTally(self._draft_lengths)
        self._languages = LanguageSample()
        self._chains = False  # whether the tallies of blocks and drafts saw the requests
        self._tokenised = False
        self._counted = False
        self._far = 0
        self._pairs = 0
        self._found: Clustering | None = None

    def add(self, requests: Sequence[Request], tokens: TokenColumns | None) -> None:
        """The next part; `tokens` belong to its requests one by one."""
        facts = facts_of(requests, tokens, sessions=self._sessions)
        self._append(facts, chains=True)
        self._languages.add(requests, facts)
        self._tokenised |= tokens is not None and bool(tokens.prompts.known.any())
        self._counted |= tokens is not None
        if tokens is not None:
            self._compare(requests, tokens, facts)
        for place, request in enumerate(requests):
            prompt = None if tokens is None else tokens.prompts.array(place)
            output = None if tokens is None else tokens.outputs.array(place)
            self._blocks.add(request, prompt, output)
            self._lookups.add(request, prompt, output)

    def add_facts(self, facts: Facts) -> None:
        """The next part of an upload without text and block ids, as columns."""
        self._append(facts, chains=False)

    def _append(self, facts: Facts, *, chains: bool) -> None:
        if self._facts and chains != self._chains:
            raise InvalidInput("facts", "an upload is added as requests or as columns, not as both")
        self._chains = chains
        self._found = None
        self._facts.append(facts)

    def _compare(self, requests: Sequence[Request], tokens: TokenColumns, facts: Facts) -> None:
        """Reported counts far from our own: another tokenizer, or a gateway that counts wrongly."""
        reported = np.array([item.prompt_tokens or 0 for item in requests], dtype=np.int64)
        own = tokens.prompts.lengths
        both = (reported > 0) & (own > 0) & (facts.prompt_source == ESTIMATED)
        one, other = reported[both], own[both]
        self._pairs += len(one)
        self._far += int((np.maximum(one, other) > _DISAGREEMENT * np.minimum(one, other)).sum())

    @property
    def facts(self) -> Facts:
        """The columns of all requests, as they were added."""
        if len(self._facts) != 1:
            self._facts = [join_facts(self._facts)]
        return self._facts[0]

    @property
    def clustering(self) -> Clustering:
        """Classes that are found in requests without any, as they were added."""
        if self._found is None:
            facts = self.facts
            order = content_order(facts)
            found = cluster(_ordered(facts, order), split=self._find_classes)
            codes = np.empty_like(found.codes)
            codes[order] = found.codes
            self._found = replace(found, codes=codes)
        return self._found

    def adopt(self, found: Clustering) -> None:
        """Take the classes that another tally found in the same requests."""
        if len(found.codes) != len(self.facts):
            raise InvalidInput("clustering", "not of these requests")
        self._found = found

    def finish(
        self, *, privacy: Privacy = Privacy.RAW, report: TraceReport | None = None
    ) -> TrafficSummary:
        """The summary of everything added. `report` says when the upload began.

        Every figure that the upload cannot give is named with its reason in `unmeasurable`.
        """
        order = content_order(self.facts)
        facts, request_classes = self._classified()
        facts = _ordered(facts, order)
        names = _names(facts)
        reuse = self._reuse(order, facts, names)
        lookups = self._lookups.finish(order) if self._chains else None
        figures = _Figures(facts=facts, reuse=reuse, lookups=lookups, k=self._draft_lengths)
        overall = figures.summary(ALL, np.arange(len(facts)))
        started_epoch_s = None if report is None else report.started_epoch_s
        shape = profile(facts, self._languages, started_epoch_s=started_epoch_s)
        found = arrivals(facts.arrival_s[~np.isnan(facts.arrival_s)])
        absent = self._unmeasurable(facts, overall, has_arrivals=found is not None)
        lengths = context_tokens(facts)
        outputs = facts.output_tokens
        return TrafficSummary(
            requests=len(facts),
            with_text=int(facts.has_text.sum()),
            sessions=0 if shape.sessions is None else shape.sessions.sessions,
            count_source=count_source(facts, tokenised=self._tokenised),
            overall=overall,
            classes=tuple(figures.summary(name, at) for name, at in _groups(facts)),
            arrivals=found,
            unmeasurable={**absent, **missing(shape, facts, started_epoch_s)},
            warnings=(*self._disagreements(), *tick_warnings(shape)),
            total_tokens=shape.context_tokens,
            paged_share=_paged_share(lengths, self._block_size),
            block_size=self._block_size,
            static_speedup=static_speedup(outputs[outputs >= 0], STATIC_BATCH),
            privacy=privacy,
            profile=shape,
            reuse=None if reuse is None else reuse.reuse,
            lookup_sweep=() if lookups is None else lookups.sweep,
            suffix=None if lookups is None else lookups.suffix,
            request_classes=request_classes,
            fits=fits(facts, self._limits),
        )

    def _classified(self) -> tuple[Facts, tuple[RequestClass, ...]]:
        """The columns with a class for every request, where there are several classes."""
        facts = self.facts
        if facts.labels:
            return facts, labelled(facts)
        found = self.clustering
        if len(found.classes) <= 1:
            return facts, found.classes
        names = tuple(sorted(item.name for item in found.classes))
        place = np.array([names.index(item.name) for item in found.classes], dtype=np.int32)
        with_classes = replace(facts, label=place[found.codes], labels=names, clustered=True)
        return with_classes, found.classes

    def _reuse(self, order: Integers, facts: Facts, names: Sequence[str | None]) -> Reuse | None:
        if not self._chains:
            return None
        return self._blocks.finish(order, names, facts.prompt_tokens)

    def _unmeasurable(
        self, facts: Facts, overall: ClassSummary, *, has_arrivals: bool
    ) -> Mapping[str, str]:
        reasons: dict[str, str] = {}
        if overall.prompt_tokens is None:
            reasons["prompt_tokens"] = (
                "no prompt lengths in the upload and no tokenizer to count with"
            )
        if overall.output_tokens is None:
            reasons["output_tokens"] = "no recorded outputs, or no tokenizer to count them with"
        if not has_arrivals:
            reasons["arrivals"] = "fewer than two different times in the upload"
        why = self._no_text(facts)
        if overall.prefix_sharing is None:
            reasons["prefix_sharing"] = why or "no prompt could be rendered with the chat template"
        if overall.lookup is None:
            reasons["lookup"] = why or "no recorded outputs of two tokens or more in the upload"
        return reasons

    def _no_text(self, facts: Facts) -> str | None:
        """Why nothing that needs text can be said, None when something can."""
        if self._tokenised:
            return None
        if not facts.has_text.any():
            return "the upload holds lengths only, and this needs text"
        if not self._counted:
            return "needs a target whose tokenizer can split the text"
        return "no prompt could be rendered: the target has no chat template that takes them"

    def _disagreements(self) -> Iterator[str]:
        if self._far:
            yield (
                f"{self._far} of {self._pairs} reported prompt counts differ from the target's own"
                f" count by more than a factor of {_DISAGREEMENT:g}; the target's count is used"
            )


def summarise(
    requests: Sequence[Request],
    tokens: TokenColumns | None,
    *,
    block_size: int,
    lookup_tokens: int = 4,
    other_lookups: Sequence[int] = (),
    report: TraceReport | None = None,
    privacy: Privacy = Privacy.RAW,
    limits: Sequence[int] = (),
) -> TrafficSummary:
    """The summary of an upload that is in memory as a whole (`TrafficTally`).

    `tokens` belong to the requests one by one; without them what needs text is None.
    `lookup_tokens` is the draft length replayed, `other_lookups` further ones.
    """
    tally = TrafficTally(
        block_size=block_size,
        draft_lengths=(lookup_tokens, *other_lookups),
        limits=limits,
        block_tokens=None if report is None else report.block_tokens,
    )
    tally.add(requests, tokens)
    return tally.finish(privacy=privacy, report=report)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Figures:
    """Columns, prefix hits and replays of all requests, in one order."""

    facts: Facts
    reuse: Reuse | None
    lookups: Lookups | None
    k: Sequence[int]

    def summary(self, label: str, members: NDArray[np.int64]) -> ClassSummary:
        """Figures of some of the requests."""
        lookup, *others = (self._lookup(members, k) for k in self.k)
        return ClassSummary(
            label=label,
            requests=len(members),
            prompt_tokens=quantiles_of(self.facts.prompt_tokens[members]),
            output_tokens=quantiles_of(self.facts.output_tokens[members]),
            prefix_sharing=self._sharing(members),
            lookup=lookup,
            other_lookups=tuple(other for other in others if other is not None),
        )

    def _lookup(self, members: NDArray[np.int64], k: int) -> LookupAcceptance | None:
        return None if self.lookups is None else self.lookups.of(members.tolist(), k)

    def _sharing(self, members: NDArray[np.int64]) -> PrefixSharing | None:
        if self.reuse is None:
            return None
        lengths = self.facts.prompt_tokens.tolist()
        known = [
            (hit, lengths[place])
            for place in members.tolist()
            if (hit := self.reuse.hits[place]) is not None and lengths[place] >= 0
        ]
        return share_of(
            [hit for hit, _ in known], [length for _, length in known], self.reuse.block_size
        )


def _ordered(facts: Facts, order: Integers) -> Facts:
    """The rows in `order`, without a copy where they are in it already."""
    return facts if (order == np.arange(len(order))).all() else facts.take(order)


def _names(facts: Facts) -> list[str | None]:
    """The class of every request."""
    names = np.array([*facts.labels, None], dtype=object)
    found: list[str | None] = names[facts.label].tolist()
    return found


def _groups(facts: Facts) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Places by class, sorted by name; nothing when the file names no classes or we found one."""
    codes = np.unique(facts.label)
    if not facts.labels or (facts.clustered and len(codes) == 1):
        return
    names = {UNLABELLED if code == UNKNOWN else facts.labels[code]: code for code in codes}
    for name in sorted(names):
        yield name, np.flatnonzero(facts.label == names[name])


def _paged_share(lengths: Integers, block_size: int) -> float | None:
    """Used share of a paged cache: only a request's last block is partly empty (handbook 2.4)."""
    known = lengths[lengths > 0]
    if not len(known):
        return None
    return float(known.sum() / (-(-known // block_size) * block_size).sum())
