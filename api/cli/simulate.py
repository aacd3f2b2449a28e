"""`rooftune simulate`: a traffic file on a simulated engine, without a service or a device."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from advisor.estimate import Source
from advisor.hardware import (
    CATALOGUE,
    DATASHEETS,
    DeviceFacts,
    Price,
    all_reduce,
    price_of_tokens,
    priced,
    read_prices,
)
from advisor.roofline.step.efficiency import prior_efficiency
from advisor.simulator.drafts import paying_drafts
from advisor.simulator.engine import LevelledEngine, engine_model
from advisor.simulator.from_traffic import TrafficLoad
from advisor.simulator.predicted import (
    Run,
    binding,
    highest_rate_per_s,
    predictions,
)
from advisor.simulator.replicas import ROUTINGS, Routing, simulate_replicas
from advisor.simulator.sharing import closed_form
from advisor.simulator.simulation import simulate as simulated
from advisor.traffic.model_folder import ModelFolder
from api.charts.simulated import page, simulated_figure
from api.cli.answer import Exit, Json, print_json
from api.cli.forecast import HARDWARE, device_of
from api.cli.gathering import Gathered, gather
from api.cli.knobs import Knobs, knobs_of
from api.cli.reading import (
    MODEL,
    Columns,
    File,
    Format,
    SessionLengths,
    Steps,
    TimeUnit,
    folder_of,
    options_of,
    progress_bars,
)
from api.cli.simulated_answer import ENDS, Answer, Asked
from api.cli.simulated_text import print_answer, sentences

CONFIG = 'Your own command, "vllm serve ...", or key=value pairs in vLLM\'s names.'
Config = Annotated[list[str] | None, typer.Option("--config", help=CONFIG)]
Folder = Annotated[Path, typer.Option("--model", exists=True, file_okay=False, help=MODEL)]
Device = Annotated[str, typer.Option("--hardware", help=HARDWARE)]
Rate = Annotated[float, typer.Option(help="So many times the file's pace.")]
Loop = Annotated[int | None, typer.Option(min=1, help="Keep so many in flight: a closed loop.")]
Replicas = Annotated[int, typer.Option(min=1, help="Equal engines behind a router.")]
Router = Annotated[
    Routing, typer.Option("--routing", help=f"How the router chooses: {', '.join(ROUTINGS)}.")
]
Static = Annotated[int | None, typer.Option(min=1, help="Static batches of so many slots instead.")]
Acceptance = Annotated[
    str | None, typer.Option(help="Share of drafts accepted up to each position: 0.7,0.5,0.3.")
]
Limit = Annotated[float | None, typer.Option(min=0, help="A goal, in seconds.")]
Seed = Annotated[int, typer.Option(help="Of what is drawn: accepted drafts, random routing.")]
Prices = Annotated[
    Path | None,
    typer.Option(exists=True, dir_okay=False, help="Your prices by hour, TOML or JSON by card."),
]
Plot = Annotated[Path | None, typer.Option(dir_okay=False, help="Write a picture as HTML.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The model and the device; `card` is its name in the catalogue, None of a file with facts.

    `price` is of an hour of the card, None where nobody knows.
    """

    folder: ModelFolder
    device: DeviceFacts
    card: str | None
    price: Price | None

    @property
    def kind(self) -> str:
        """The kind of device."""
        return self.device.kind


def simulate(
    file: File,
    *,
    model: Folder,
    hardware: Device,
    config: Config = None,
    rate: Rate = 1.0,
    concurrency: Loop = None,
    replicas: Replicas = 1,
    routing: Router = "round_robin",
    static_batch: Static = None,
    acceptance: Acceptance = None,
    ttft_p95: Limit = None,
    tpot_p95: Limit = None,
    seed: Seed = 0,
    prices: Prices = None,
    columns: Columns = None,
    time_unit: TimeUnit = None,
    session_lengths: SessionLengths = None,
    file_format: Format = None,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Serve the traffic on a simulated engine: latencies, throughput, memory, what binds.

    Exits 0 when it fits, keeps up and meets the goals, 1 when it does not, 4 when the ranges leave
    that open. Nothing is started.
    """
    asked = Asked(
        rate=rate,
        concurrency=concurrency,
        replicas=replicas,
        routing=routing,
        seed=seed,
        limits=_limits(ttft_p95_s=ttft_p95, tpot_p95_s=tpot_p95),
    )
    knobs = knobs_of(config or ())
    knobs = replace(knobs, words=replace(knobs.words, static_batch=static_batch))
    machine = Machine(
        folder=folder_of(model, knobs.config.functional.chat_template),
        device=device_of(hardware),
        card=hardware if hardware in DATASHEETS else None,
        price=_hourly(hardware, prices),
    )
    options = options_of(columns, time_unit, session_lengths, file_format)
    with progress_bars(quiet=as_json) as bars:
        gathered = gather(
            file, options, bars, folder=machine.folder, config=knobs.config, kind=machine.kind
        )
        knobs = replace(knobs, words=gathered.with_acceptance(knobs.words, acceptance))
        answer = _answer(gathered, machine, knobs, asked, bars=bars)
    answer = _advised(answer, machine.price, stated=acceptance is not None)
    if plot is not None:
        _write_picture(plot, answer, f"{file.name} on {machine.device.name}")
    if as_json:
        print_json(answer.json())
    else:
        print_answer(answer, f"{model.name} on {machine.device.name}")
    if answer.ending != Exit.OK:
        raise typer.Exit(answer.ending)


def _limits(**stated: float | None) -> Mapping[str, float]:
    """The goals that were given, by figure."""
    return {name: limit for name, limit in stated.items() if limit is not None}


def _hourly(hardware: str, file: Path | None) -> Price | None:
    """Of the list or of the user's file, which is read before anything long begins."""
    own: Mapping[str, Price] = {}
    if file is not None:
        kind: Literal["toml", "json"] = "json" if file.suffix == ".json" else "toml"
        own = read_prices(file.read_text(encoding="utf-8"), kind, CATALOGUE)
    card = priced(own).get(hardware)
    return None if card is None else card.price


def _advised(answer: Answer, price: Price | None, *, stated: bool) -> Answer:
    """With the drafts that pay, and what a million tokens cost at `price`."""
    drafts = paying_drafts(
        answer.engine,
        answer.knobs.words,
        answer.traffic.load,
        source=Source.LITERATURE if stated else Source.SIMULATED,
    )
    answer = replace(answer, drafts=drafts)
    rate = answer.predicted.get("output_tokens_per_s")
    if price is None or rate is None or rate.low <= 0:
        return answer
    cards = answer.knobs.words.tensor_parallel_size * answer.asked.replicas
    cost = price_of_tokens(price, cards, rate)
    return replace(answer, price=cost, currency=price.currency)


def _write_picture(file: Path, answer: Answer, title: str) -> None:
    """Nothing where nothing was simulated."""
    if answer.runs:
        text = page(simulated_figure(answer.runs), title, list(sentences(answer)))
        file.write_text(text, encoding="utf-8")


def _answer(
    gathered: Gathered, machine: Machine, knobs: Knobs, asked: Asked, *, bars: Steps
) -> Answer:
    traffic = gathered.tally.finish(rate=asked.rate, concurrency=asked.concurrency)
    ranks = knobs.words.tensor_parallel_size
    engine = engine_model(
        machine.folder.shape,
        machine.device,
        knobs.config,
        knobs.words,
        efficiency=prior_efficiency(machine.device),
        all_reduce=None if machine.card is None else all_reduce(machine.card, ranks),
    )
    told = bars.of("simulating", len(ENDS) * 2)
    runs: dict[str, Run] = {}
    rates: list[float | None] = []
    for place, (name, level) in enumerate(zip(ENDS, engine.levels, strict=False)):
        runs[name] = _run(traffic, level, asked)
        told(2 * place + 1)
        rates.append(_highest(runs[name], level, asked))
        told(2 * place + 2)
    ends = tuple(runs.values())
    centre = runs.get("centre")
    return Answer(
        engine=engine,
        traffic=traffic,
        knobs=knobs,
        asked=asked,
        runs=runs,
        binds=None if centre is None else binding(centre, engine.centre.tables),
        predicted=predictions(ends, engine.not_modelled),
        rates=tuple(rates),
        form=None if centre is None or asked.replicas > 1 else closed_form(
            traffic.load,
            engine.centre.settings,
            engine.centre.step,
            shared=traffic.sharing is not None,
        ),
    )  # fmt: skip


def _run(traffic: TrafficLoad, level: LevelledEngine, asked: Asked) -> Run:
    """The load on all engines; what one of them may hold counts as often as there are."""
    load, settings, many = traffic.load, level.settings, asked.replicas
    if many == 1:
        outcome = simulated(load, settings, level.tables, seed=asked.seed)
        return Run(load=load, settings=settings, outcome=outcome)
    merged = simulate_replicas(
        load,
        settings,
        level.tables,
        replicas=many,
        routing=asked.routing,
        seed=asked.seed,
    ).merged
    together = replace(
        settings,
        max_num_seqs=settings.max_num_seqs * many,
        max_num_batched_tokens=settings.max_num_batched_tokens * many,
    )
    outcome = replace(merged, busy_s=merged.busy_s / many)
    return Run(load=load, settings=together, outcome=outcome)


def _highest(one: Run, level: LevelledEngine, asked: Asked) -> float | None:
    if asked.concurrency is not None:
        return None
    found = highest_rate_per_s(replace(one, settings=level.settings), level.tables, seed=asked.seed)
    return None if found is None else found * asked.replicas
