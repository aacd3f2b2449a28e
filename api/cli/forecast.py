"""`rooftune forecast`: what a traffic file promises on a model and a device, without a service."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError
from rich.table import Table

from advisor.baseline_command import ParsedBaseline, parse_serve_command
from advisor.canonical import as_json as plain
from advisor.errors import InvalidInput
from advisor.estimate import Estimate
from advisor.hardware import DATASHEETS, DeviceFacts, datasheet
from advisor.recommender.outlook import Outlook, Served, TechniqueOutlook, outlook
from advisor.recommender.screening import Forecast, Worth
from advisor.serving import ServingConfig
from advisor.techniques import draft_lengths, technique
from advisor.traffic.formats import read_trace
from advisor.traffic.model_folder import ModelFolder, read_folder
from advisor.traffic.summary import summarise
from advisor.traffic.tokens import token_columns
from advisor.traffic.trace import TrafficSummary
from advisor.units import percent_text
from api.cli.answer import Exit, Json, console, print_json
from api.cli.workloads import BLOCK_SIZE, File
from api.codec import read_value

CARDS = ", ".join(sorted(DATASHEETS))
MODEL = "Folder with config.json, tokenizer.json and tokenizer_config.json."
HARDWARE = f"{CARDS}; or a file with the facts of a device, as GET /v1/devices gives them."
Model = Annotated[Path | None, typer.Option(exists=True, file_okay=False, help=MODEL)]
Hardware = Annotated[str | None, typer.Option(help=HARDWARE)]
InFlight = Annotated[int, typer.Option(min=1, help="Requests in flight to serve.")]
Baseline = Annotated[str | None, typer.Option(help='Your own command: "vllm serve ...".')]


def forecast(
    file: File,
    *,
    model: Model = None,
    hardware: Hardware = None,
    concurrency: InFlight = 16,
    baseline: Baseline = None,
    as_json: Json = False,
) -> None:
    """Which techniques are worth testing on this traffic: from the file and the roofline alone.

    Exits 0 when at least one is, 1 when none is, 4 when nobody can say of any. Without a model
    only what lengths say.
    """
    parsed = None if baseline is None else parse_serve_command(baseline)
    folder = None if model is None else _folder(model, parsed)
    if folder is not None and hardware is None:
        raise InvalidInput("--hardware", f"is needed with --model: {HARDWARE}")
    device = None if hardware is None else _device(hardware)
    found = outlook(
        _summary(file, folder), _served(folder, device, parsed), concurrency=concurrency
    )
    notes = () if parsed is None else parsed.notes
    if as_json:
        print_json({"outlook": plain(found), "baseline_notes": list(notes)})
    else:
        _print(found, notes)
    code = ending(found)
    if code != Exit.OK:
        raise typer.Exit(code)


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
    def read(name: str) -> bytes | None:
        file = model / name
        return file.read_bytes() if file.is_file() else None

    own = None if parsed is None else parsed.functional.chat_template
    return read_folder(read, chat_template=own)


def _device(hardware: str) -> DeviceFacts:
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


def _summary(file: Path, folder: ModelFolder | None) -> TrafficSummary:
    with file.open("rb") as stream:
        requests = read_trace(stream, filename=file.name).requests
    tokens = None if folder is None else token_columns(requests, folder.tokenizer())
    main, *others = draft_lengths()
    return summarise(
        requests, tokens, block_size=BLOCK_SIZE, lookup_tokens=main, other_lookups=others
    )


def _served(
    folder: ModelFolder | None, device: DeviceFacts | None, parsed: ParsedBaseline | None
) -> Served | None:
    if folder is None or device is None:
        return None
    baseline = ServingConfig()
    if parsed is not None:
        baseline = ServingConfig(functional=parsed.functional, levers=parsed.levers)
    return Served(model=folder.shape, device=device, baseline=baseline)


def _print(found: Outlook, notes: tuple[str, ...]) -> None:
    out = console()
    where = f"{found.model} on {found.hardware}" if found.hardware else "lengths alone"
    table = Table(title=f"Forecast at {found.concurrency} in flight: {where}")
    for title in ("technique", "in flight", "", "expected gain", "why"):
        table.add_column(title, overflow="fold")
    for item in found.techniques:
        for place, said in enumerate(item.forecasts):
            table.add_row(*_line(item, said, first=place == 0))
    out.print(table)
    for line in (*_sentences(found), *(f"not kept  {note}" for note in notes)):
        out.print(line, markup=False)


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
    for what, why in found.unmeasurable.items():
        yield f"unknown   {what}: {why}"


def _line(item: TechniqueOutlook, said: Forecast, *, first: bool) -> tuple[str, ...]:
    return (
        item.title if first else "",
        str(said.concurrency),
        said.worth.value,
        _gain(said.predicted),
        said.reason or "",
    )


def _gain(predicted: Estimate | None) -> str:
    if predicted is None:
        return "-"
    ends = f"{percent_text(predicted.low)} to {percent_text(predicted.high)}"
    return f"{percent_text(predicted.value)} ({ends})"
