"""What `rooftune simulate` found, for a person."""

import json
from collections.abc import Callable, Iterator, Mapping

from rich.table import Table

from advisor.estimate import Prediction
from advisor.roofline.speculation import DraftSchedule
from advisor.simulator.predicted import PERCENTILES
from advisor.units import MILLISECONDS_PER_S, bytes_text, seconds_text
from api.cli.answer import console
from api.cli.report_text import head, line
from api.cli.simulated_answer import ENDS, Answer

_WHOLE_FROM = 1000


def print_answer(answer: Answer, where: str) -> None:
    """Sentences, the table of times, and what is left out."""
    out = console()
    head(out, f"Simulated: {where}")
    for text in sentences(answer):
        line(out, "", text)
    if answer.runs:
        out.print(_times_table(answer))
    for change in answer.engine.fit.changes:
        line(out, "would fit", f"{change.setting} {change.value}")
    if answer.runs:
        head(out, "Not modelled")
    for text in answer.engine.not_modelled if answer.runs else ():
        line(out, "", text)
    for note in answer.knobs.notes:
        line(out, "not kept", note)


def _times_table(answer: Answer) -> Table:
    columns = ("mean", *(f"p{percentile}" for percentile in PERCENTILES))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("", no_wrap=True)
    for title in columns:
        table.add_column(title, no_wrap=True)
    for name in ("ttft", "tpot", "e2e"):
        said = [answer.predicted.get(f"{name}_{column}_s") for column in columns]
        if any(said):
            table.add_row(name.upper(), *(_times(one) for one in said))
    return table


def _times(said: Prediction | None) -> str:
    """A duration with its interval below it, in one unit."""
    if said is None:
        return "-"
    scale, unit = (MILLISECONDS_PER_S, "ms") if said.high < 1 else (1.0, "s")
    value, low, high = (f"{number * scale:.3g}" for number in (said.value, said.low, said.high))
    return f"{value} {unit}\n{low} to {high}"


def sentences(answer: Answer) -> Iterator[str]:
    """What a person should know, the important first."""
    fit = answer.engine.fit
    yield from _load_sentences(answer)
    if not answer.runs:
        yield f"It {fit.text}. In the way: {fit.binding}, {bytes_text(fit.missing_bytes)} short."
        return
    if answer.engine.assumed is not None:
        yield f"Memory: {answer.engine.assumed}."
    for name, text in _FIGURES.items():
        if name in answer.predicted:
            yield text(answer.predicted[name])
    if answer.binds is not None:
        yield f"What binds: {answer.binds}."
    yield from _verdicts(answer)
    if answer.drafts is not None:
        yield _drafts_sentence(answer.drafts)
    if answer.price is not None:
        cost = answer.price
        yield (
            f"A million output tokens at this load: {cost.value:,.3g} {answer.currency}"
            f" ({cost.low:,.3g} to {cost.high:,.3g}; {cost.basis})."
        )


def _drafts_sentence(schedule: DraftSchedule) -> str:
    """The lengths that pay, and the setting that says so to vLLM."""
    if schedule.num_speculative_tokens == 0:
        return "No draft length pays at any number of decoding requests."
    lengths = ", ".join(
        f"{'none' if tokens == 0 else tokens} from {first} to {last}"
        for first, last, tokens in schedule.ranges
    )
    return (
        f"Draft tokens that pay by decoding requests: {lengths}. In --speculative-config:"
        f" {json.dumps(schedule.settings())} (calculated, not measured)."
    )


def _load_sentences(answer: Answer) -> Iterator[str]:
    traffic, asked = answer.traffic, answer.asked
    loop = "at the file's times" if asked.rate == 1 else f"at {asked.rate:g} times the file's pace"
    if asked.concurrency is not None:
        loop = f"with {asked.concurrency} in flight"
    engines = "" if asked.replicas == 1 else f" on {asked.replicas} engines ({asked.routing})"
    yield f"{len(traffic.load):,} requests {loop}{engines}."
    for why, count in traffic.left_out.items():
        yield f"{count:,} requests {why} are left out."
    shared = "not known, so none is taken as shared"
    if traffic.sharing is not None:
        shared = f"known by {traffic.sharing}"
    yield f"Prefixes: {shared}."
    if answer.runs:
        refused = int(answer.runs["centre"].outcome.refused.sum())
        if refused:
            yield f"{refused:,} requests are refused: longer than the model or the whole cache."


def _verdicts(answer: Answer) -> Iterator[str]:
    offered, rates = answer.offered_per_s, [rate for rate in answer.rates if rate is not None]
    if offered is not None and len(rates) == len(ENDS):
        words = {True: "It keeps up", False: "It cannot keep up", None: "It may not keep up"}
        yield (
            f"{words[answer.keeps_up]}: {offered:.3g} requests/s come, at most"
            f" {rates[1]:.3g} ({min(rates):.3g} to {max(rates):.3g}) are served."
        )
    for name, met in answer.met.items():
        words = {True: "met", False: "missed", None: "open: the interval holds the limit"}
        yield f"Goal {name} of {answer.asked.limits[name]:g}: {words[met]}."
    if answer.form is not None and answer.form.reason is None:
        sharing = answer.form.sharing
        yield (
            f"Closed form (processor sharing): TPOT {seconds_text(sharing.tpot_s)},"
            f" {sharing.running:.3g} running."
        )


def _number(what: str, unit: str = "") -> Callable[[Prediction], str]:
    def text(said: Prediction) -> str:
        return f"{what} {_figure(said.value)} ({_figure(said.low)} to {_figure(said.high)}){unit}."

    return text


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= _WHOLE_FROM else f"{value:.3g}"


def _share(what: str) -> Callable[[Prediction], str]:
    return lambda said: f"{what} {said.value:.0%} ({said.low:.0%} to {said.high:.0%})."


_FIGURES: Mapping[str, Callable[[Prediction], str]] = {
    "output_tokens_per_s": _number("Throughput", " output tokens/s"),
    "running_mean": _number("Running in the mean", " requests"),
    "waiting_mean": _number("Waiting in the mean", " requests"),
    "kv_usage_peak": _share("KV cache in use at most"),
    "preemptions": _number("Preemptions"),
    "cached_prompt_share": _share("Prompt tokens from the prefix cache"),
    "accepted_draft_share": _share("Accepted of drafted tokens"),
}
