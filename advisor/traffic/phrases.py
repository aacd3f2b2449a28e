"""Sentences and rows about traffic, the same for the command line and the dashboard."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from advisor.traffic.figures import (
    Burstiness,
    Duplicates,
    FirstDifference,
    Fit,
    JointLengths,
    LookupAcceptance,
    Mix,
    ReusePoint,
    SubsetDistance,
)
from advisor.traffic.trace import Privacy, TraceReport

# What each mode costs, in one line, where a person chooses.
PRIVACY_WORDS: Mapping[Privacy, str] = {
    Privacy.RAW: "keeps the text: every conclusion stands",
    Privacy.REDACTED: "replaces addresses, numbers, keys and names by others of the same length;"
    " answers about them cannot be judged",
    Privacy.HASHED: "keeps keyed hashes of token blocks and counts, no text: nothing can be"
    " replayed; needs a target that counts",
    Privacy.LENGTHS: "keeps counts and times only: neither shared prefixes nor drafts nor quality"
    " can be looked into again",
}
# How a reading that the file left open is set by hand.
OVERRIDES: Mapping[str, str] = {
    "session_lengths": "--session-lengths",
    "time_unit": "--time-unit",
    "format": "--format",
}
# Languages and models beyond these are counted together.
SHOWN_NAMES = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """So many of so many requests have a property; `kind` groups rows that belong together."""

    kind: str
    name: str
    requests: int
    of: int

    @property
    def share(self) -> float:
        """Share of the requests that were looked at."""
        return self.requests / self.of if self.of else 0.0


def percent(share: float) -> str:
    """A share of one without an interval: ``percent(0.25) == "25.0 %"``."""
    return f"{share * 100:.1f} %"


def mix_parts(mix: Mix) -> Iterator[Part]:
    """The mix as rows. What was not looked at, for there is no text, has no row: not 0."""
    for kind, name, requests in (
        ("tools", "offer tools", mix.tools),
        ("tools", "hold results of tools", mix.tool_turns),
        ("images", "hold images", mix.images),
        ("output", "ask for JSON or a schema", mix.structured),
    ):
        if requests or mix.read:
            yield Part(kind=kind, name=name, requests=requests, of=mix.requests)
    for name, requests in (
        ("temperature 0", mix.greedy),
        ("temperature above 0", mix.sampled),
        ("temperature not said", mix.unknown_temperature),
    ):
        if requests:
            yield Part(kind="sampling", name=name, requests=requests, of=mix.requests)
    if mix.read:
        yield Part(kind="text", name="mostly code", requests=mix.code, of=mix.read)
        for name, count in _most(mix.languages):
            yield Part(kind="language", name=name, requests=count, of=mix.read)
    for name, count in _most(mix.models):
        yield Part(kind="model", name=name, requests=count, of=mix.requests)


def _most(counts: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """The most frequent names, then the rest in one."""
    order = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    yield from order[:SHOWN_NAMES]
    rest = order[SHOWN_NAMES:]
    if rest:
        yield f"{len(rest)} others", sum(count for _, count in rest)


def fit_sentence(fit: Fit) -> str:
    """What a length limit serves, in requests and in prompt tokens."""
    lost = fit.requests - fit.fitting
    if lost == 0:
        return f"max_model_len {fit.max_model_len:,} serves every request."
    tokens = fit.prompt_tokens - fit.prompt_tokens_fitting
    share = tokens / fit.prompt_tokens if fit.prompt_tokens else 0.0
    by_prompt = f", {fit.prompt_too_long:,} by the prompt alone" if fit.prompt_too_long else ""
    return (
        f"max_model_len {fit.max_model_len:,} does not serve {lost:,} of {fit.requests:,} requests"
        f" ({percent(lost / fit.requests)}, with {percent(share)} of the prompt tokens{by_prompt});"
        f" {fit.needed_max_model_len:,} would serve all."
    )


def early_sentence(found: FirstDifference) -> str:
    """What is lost because prompts differ before they agree."""
    if found.early is None or found.lost_share is None:
        return "Block ids do not show whether prompts agree again behind their first difference."
    if found.early == 0:
        return "No prompt agrees with an earlier one behind their first difference for longer."
    return (
        f"{percent(found.early)} of the prompts leave all earlier ones although a longer stretch"
        " than they share occurs in an earlier prompt behind that place;"
        f" {percent(found.lost_share)} of the prompt tokens stand in such stretches."
    )


def duplicates_sentence(found: Duplicates) -> str:
    """How often prompts repeat to the last character."""
    if found.repeated == 0:
        return f"No prompt repeats among {found.requests:,} requests with text."
    share = percent(found.repeated / found.requests)
    return (
        f"{found.repeated:,} of {found.requests:,} requests ({share}) have a prompt that occurs"
        f" more than once to the last character; {found.distinct:,} prompts are distinct, one"
        f" occurs {found.most_often:,} times."
    )


def window_text(window_s: float) -> str:
    """A round window as people say it: ``window_text(600) == "10 min"``."""
    for size_s, name in ((86_400, "d"), (3600, "h"), (60, "min")):
        if window_s >= size_s and window_s % size_s == 0:
            return f"{window_s / size_s:g} {name}"
    return f"{window_s:g} s"


def fano_parts(found: Burstiness) -> tuple[tuple[float, float], ...]:
    """Window in seconds and Fano factor, short windows first."""
    parts = [(float(window), fano) for window, fano in found.fano_by_window.items()]
    return tuple(sorted(parts))


def tick_sentence(found: Burstiness) -> str | None:
    """What a coarse clock takes from the figures of gaps."""
    if found.tick_s is None:
        return None
    return (
        f"The log's clock ticks every {found.tick_s:g} s: gaps within a tick are an artefact, so"
        " read the Fano factors of longer windows instead of the variation of gaps."
    )


def lookup_title(found: LookupAcceptance) -> str:
    """Method, draft length and bounds of the lookup."""
    if found.method != "ngram":
        return f"{found.method}, k={found.num_speculative_tokens}"
    window = f"{found.prompt_lookup_min} to {found.prompt_lookup_max}"
    if found.prompt_lookup_min == found.prompt_lookup_max:
        window = str(found.prompt_lookup_min)
    return f"n-gram of {window}, k={found.num_speculative_tokens}"


def distance_sentence(found: SubsetDistance) -> str:
    """How far a subset is from the upload it was drawn from."""
    known = {"lengths": found.lengths, "reuse": found.reuse, "classes": found.classes}
    known |= {"burstiness": found.burstiness}
    parts = [f"{name} {value:.2f}" for name, value in known.items() if value is not None]
    return (
        f"{found.requests:,} of {found.of:,} requests, at a distance of {found.total:.2f} from the"
        f" upload ({', '.join(parts)}; 0 is equal, 1 as far as can be)."
    )


def readings_lines(report: TraceReport) -> Iterator[str]:
    """Each choice that the file left open and how to take the other one."""
    for name, value in report.readings.items():
        option = OVERRIDES.get(name)
        yield f"{name}: {value}" + (f" ({option} overrides)" if option else "")


def spread_out(curve: Sequence[ReusePoint], most: int) -> tuple[ReusePoint, ...]:
    """At most `most` points, evenly by their place; the first and the last are among them."""
    if len(curve) <= most:
        return tuple(curve)
    places = {round(step * (len(curve) - 1) / (most - 1)) for step in range(most)}
    return tuple(curve[place] for place in sorted(places))


def coarse(joint: JointLengths, most: int) -> JointLengths:
    """The same requests in at most `most` bins each way; empty ends are cut first."""
    rows = _bounds([sum(row) for row in joint.counts], most)
    columns = _bounds([sum(column) for column in zip(*joint.counts, strict=True)], most)
    return replace(
        joint,
        prompt_edges=tuple(joint.prompt_edges[place] for place in rows),
        output_edges=tuple(joint.output_edges[place] for place in columns),
        counts=tuple(
            tuple(
                sum(sum(line[left:right]) for line in joint.counts[top:bottom])
                for left, right in pairwise(columns)
            )
            for top, bottom in pairwise(rows)
        ),
    )


def _bounds(totals: Sequence[int], most: int) -> list[int]:
    """Places of the edges of at most `most` groups of bins, from the first full to the last."""
    full = [place for place, total in enumerate(totals) if total]
    if not full:
        return [0, len(totals)]
    first, last = full[0], full[-1] + 1
    groups = min(most, last - first)
    return sorted({first + round(step * (last - first) / groups) for step in range(groups + 1)})
