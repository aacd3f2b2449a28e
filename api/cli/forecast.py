"""`rooftune forecast`: what a traffic file promises on a model and a device, without a service."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError
from rich.console import Console
from rich.table import Table

from advisor.baseline_command import ParsedBaseline, parse_serve_command
from advisor.canonical import as_json as plain
from advisor.errors import InvalidInput
from advisor.estimate import Estimate
from advisor.hardware import DATASHEETS, DeviceFacts, datasheet
from advisor.recommender.cache_share import share_at
from advisor.recommender.capacity import CacheSize, cache_sentence, cache_size
from advisor.recommender.explain import interval_text
from advisor.recommender.memory_report import memory_fit, memory_words
from advisor.recommender.outlook import Outlook, Served, TechniqueOutlook, outlook
from advisor.recommender.phrases import share_text
from advisor.recommender.screening import Forecast, Worth
from advisor.roofline.memory import Fit
from advisor.serving import ServingConfig, default_block_size
from advisor.techniques import draft_lengths, technique
from advisor.traffic.figures import TrafficSummary
from advisor.traffic.model_folder import ModelFolder
from advisor.traffic.phrases import fit_sentence, percent
from api.cli.answer import Exit, Json, console, print_json
from api.cli.reading import (
    BLOCK_SIZE,
    BlockSize,
    Columns,
    Counting,
    File,
    Format,
    MaxModelLen,
    Model,
    Reading,
    SessionLengths,
    TimeUnit,
    folder_of,
    limits_of,
    options_of,
    read_file,
)
from api.cli.report_text import head, line
from api.codec import read_value

DEFAULT_IN_FLIGHT = 16
CARDS = ", ".join(sorted(DATASHEETS))
HARDWARE = f"{CARDS}; or a file with the facts of a device, as GET /v1/devices gives them."
IN_FLIGHT = f"Requests in flight to serve. Without it {DEFAULT_IN_FLIGHT}, or at another --rate the"
IN_FLIGHT += " mean of the recorded durations at that rate."
Hardware = Annotated[str | None, typer.Option(help=HARDWARE)]
InFlight = Annotated[int | None, typer.Option(min=1, help=IN_FLIGHT)]
Rate = Annotated[float, typer.Option(help="What if requests came so many times as fast?")]
Baseline = Annotated[str | None, typer.Option(help='Your own command: "vllm serve ...".')]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """A forecast with what it rests on; `basis` says where the load comes from."""

    found: Outlook
    reading: Reading
    basis: str
    served: Served | None
    notes: tuple[str, ...]

    @property
    def cache(self) -> CacheSize | None:
        """The KV cache of the served model, where one is."""
        if self.served is None:
            return None
        return cache_size(self.served.model, self.served.device, self.served.baseline)

    @property
    def memory(self) -> Fit | None:
        """Whether the served model starts, and where its memory goes."""
        if self.served is None:
            return None
        return memory_fit(self.served.model, self.served.device, self.served.baseline)

    @property
    def hit_share(self) -> float | None:
        """Of all prompt tokens, what a cache of this size serves with nothing else in it."""
        cache, reuse = self.cache, self.reading.summary.reuse
        if cache is None or reuse is None or not reuse.curve:
            return None
        return share_at(reuse.curve, cache.tokens / reuse.block_size)

    def json(self) -> dict[str, object]:
        """As JSON values."""
        return {
            "outlook": plain(self.found),
            "baseline_notes": list(self.notes),
            "in_flight": self.found.concurrency,
            "in_flight_basis": self.basis,
            "kv_cache": None if self.cache is None else plain(self.cache),
            "kv_cache_hit_share": self.hit_share,
            "memory": None if self.memory is None else plain(self.memory),
            "fits": plain(self.reading.summary.fits),
            "report": plain(self.reading.report),
        }


def forecast(
    file: File,
    *,
    model: Model = None,
    hardware: Hardware = None,
    concurrency: InFlight = None,
    rate: Rate = 1.0,
    baseline: Baseline = None,
    columns: Columns = None,
    time_unit: TimeUnit = None,
    session_lengths: SessionLengths = None,
    file_format: Format = None,
    max_model_len: MaxModelLen = None,
    block_size: BlockSize | None = None,
    as_json: Json = False,
) -> None:
    """Which techniques are worth testing on this traffic: from the file and the roofline alone.

    Exits 0 when at least one is, 1 when none is, 4 when nobody can say of any. Without a model
    only what lengths say. Nothing is started.
    """
    parsed = None if baseline is None else parse_serve_command(baseline)
    folder = None if model is None else _folder(model, parsed)
    if folder is not None and hardware is None:
        raise InvalidInput("--hardware", f"is needed with --model: {HARDWARE}")
    device = None if hardware is None else device_of(hardware)
    options = options_of(columns, time_unit, session_lengths, file_format)
    own = None if parsed is None else parsed.functional.max_model_len
    counting = Counting(
        tokenizer=None if folder is None else folder.counting(),
        block_size=block_size or _block_size(parsed, device),
        draft_lengths=tuple(draft_lengths()),
        limits=limits_of(folder, max_model_len or own),
        rate=rate,
    )
    reading = read_file(file, options, counting, quiet=as_json)
    load, basis = in_flight(reading.summary, concurrency, rate)
    served = _served(folder, device, parsed)
    found = outlook(reading.summary, served, concurrency=load)
    answer = _Answer(
        found=found,
        reading=reading,
        basis=basis,
        served=served,
        notes=() if parsed is None else parsed.notes,
    )
    if as_json:
        print_json(answer.json())
    else:
        _print(answer)
    code = ending(found)
    if code != Exit.OK:
        raise typer.Exit(code)


def _block_size(parsed: ParsedBaseline | None, device: DeviceFacts | None) -> int:
    """Of the command, else what the engine takes on that device."""
    named = None if parsed is None else parsed.levers.block_size
    if named is not None or device is None:
        return named or BLOCK_SIZE
    return default_block_size(device.kind)


def in_flight(summary: TrafficSummary, asked: int | None, rate: float) -> tuple[int, str]:
    """The load to forecast for, and where it comes from.

    At another rate it is the mean of the recorded durations put on the faster arrivals (Little's
    law): less than it will be where the engine then takes longer.
    """
    if asked is not None:
        return asked, "as asked"
    held = None if summary.profile is None else summary.profile.concurrency
    if rate == 1 or held is None:
        why = "" if rate == 1 else "; the file holds no durations to say what the rate makes of it"
        return DEFAULT_IN_FLIGHT, f"assumed{why}"
    return max(1, round(held.mean)), f"mean of the recorded durations at {rate:g} times the rate"


def _cache_lines(answer: _Answer) -> Iterator[str]:
    """The KV cache and how much of the prompts it serves."""
    if answer.served is None:
        return
    cache, share, summary = answer.cache, answer.hit_share, answer.reading.summary
    yield cache_sentence(cache)
    if answer.memory is not None:
        yield from memory_words(answer.memory)
    if share is None or cache is None or summary.reuse is None:
        why = summary.unmeasurable.get("prefix_sharing")
        yield f"Its hit share is not known: {why or 'no prompt shares a block'}."
        return
    about = "" if cache.exact else "about "
    yield (
        f"With nothing else in it that serves {about}{percent(share)} of the prompt tokens; an"
        f" unlimited cache {share_text(summary.reuse.ceiling)}."
    )


def ending(found: Outlook) -> Exit:
    """What a forecast exits with; what sets no lever cannot be tested for its own sake."""
    worths = {
        said.worth
        for item in found.techniques
        if technique(item.technique).static_slots is None
        for said in item.forecasts
    }
    if Worth.TEST in worths:
        return Exit.OK
    return Exit.INCONCLUSIVE if Worth.UNKNOWN in worths else Exit.NEGATIVE


def _folder(model: Path, parsed: ParsedBaseline | None) -> ModelFolder:
    return folder_of(model, None if parsed is None else parsed.functional.chat_template)


def device_of(hardware: str) -> DeviceFacts:
    """A card of the table by name, or the facts in a file; an unknown name lists the known ones."""
    path = Path(hardware)
    if hardware in DATASHEETS or not path.is_file():
        return datasheet(hardware)
    try:
        held = json.loads(path.read_bytes())
        facts = held.get("facts", held) if isinstance(held, dict) else held
        return read_value(facts, DeviceFacts)
    except (ValueError, ValidationError):
        raise InvalidInput(
            "--hardware", f"{hardware} does not hold the facts of a device"
        ) from None


def _served(
    folder: ModelFolder | None, device: DeviceFacts | None, parsed: ParsedBaseline | None
) -> Served | None:
    if folder is None or device is None:
        return None
    baseline = ServingConfig()
    if parsed is not None:
        baseline = ServingConfig(functional=parsed.functional, levers=parsed.levers)
    return Served(model=folder.shape, device=device, baseline=baseline)


def _print(answer: _Answer) -> None:
    out, found, reading = console(), answer.found, answer.reading
    report = reading.report
    read_as = report.title or report.format
    line(out, "file", f"{report.accepted:,} requests of {report.rows:,} rows, read as {read_as}")
    for warning in (*report.warnings, *reading.summary.warnings):
        line(out, "warning", warning)
    where = f"{found.model} on {found.hardware}" if found.hardware else "lengths alone"
    head(out, f"Forecast at {found.concurrency} in flight ({answer.basis}): {where}")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("technique", overflow="fold", max_width=58)
    table.add_column("in flight", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("expected gain", no_wrap=True)
    for item in found.techniques:
        for place, said in enumerate(item.forecasts):
            table.add_row(*_line(item, said, first=place == 0))
    out.print(table)
    _print_reasons(out, found)
    head(out, "What it rests on")
    fits = [fit_sentence(fit) for fit in reading.summary.fits if fit.fitting < fit.requests]
    for text in (*_sentences(found), *_cache_lines(answer), *fits[-1:]):
        line(out, "", text)
    for what, why in found.unmeasurable.items():
        line(out, "unknown", f"{what.replace('_', ' ')}: {why}")
    for note in answer.notes:
        line(out, "not kept", note)


def _sentences(found: Outlook) -> Iterator[str]:
    if found.regime is not None:
        yield found.regime
    if found.static_speedup is not None:
        gain = found.static_speedup.value
        yield f"Over static batches, continuous batching gains up to {gain:.2f} times."
    if found.paging is not None:
        paging = found.paging
        yield (
            f"Of a KV cache {paging.paged_share:.0%} holds tokens with blocks of"
            f" {paging.block_size}, {paging.contiguous_share:.0%} with {paging.reserved_tokens}"
            " reserved per request."
        )


def _print_reasons(out: Console, found: Outlook) -> None:
    """Every reason once, with the techniques that it is about."""
    about: dict[str, dict[str, None]] = {}
    for item in found.techniques:
        for said in item.forecasts:
            if said.reason:
                about.setdefault(said.reason, {})[item.title] = None
    if about:
        head(out, "Why")
    for reason, titles in about.items():
        line(out, "", f"{', '.join(titles)}: {reason}")


def _line(item: TechniqueOutlook, said: Forecast, *, first: bool) -> tuple[str, ...]:
    return (
        item.title if first else "",
        str(said.concurrency),
        said.worth.value,
        _gain(said.predicted),
    )


def _gain(predicted: Estimate | None) -> str:
    if predicted is None:
        return "-"
    return interval_text(predicted)
