"""`rooftune study`: start, watch, show, cancel."""

from dataclasses import fields
from typing import Annotated

import typer

from advisor.errors import InvalidInput
from advisor.goal import ClassLimits, Goal, Objective
from advisor.measurement.records import LoadRole
from advisor.serving import Levers
from advisor.states import STUDY_OVER, StudyState
from advisor.units import seconds_text
from api.cli.answer import Column, Exit, Json, console, emit, print_json
from api.cli.connection import connect
from api.client import Client
from api.codec import json_value
from api.schemas import EventView, StudyView, TrialView

app = typer.Typer(help="Studies of a workload on a target.", no_args_is_help=True)
COLUMNS = (
    Column(title="id", path="id"),
    Column(title="name", path="name"),
    Column(title="state", path="state"),
    Column(title="error", path="error"),
    Column(title="progress", path="progress"),
    Column(title="concurrency", path="goal.concurrency"),
    Column(title="recommendation", path="recommendation_id"),
)
ENDINGS = {
    StudyState.DONE: Exit.OK,
    StudyState.INCONCLUSIVE: Exit.INCONCLUSIVE,
    StudyState.INFEASIBLE: Exit.NEGATIVE,
    StudyState.FAILED: Exit.NEGATIVE,
    StudyState.CANCELLED: Exit.NEGATIVE,
}


def class_limit(text: str) -> tuple[str, ClassLimits]:
    """The class and its limits in ``CLASS:ttft_p95_s=2,tpot_p95_s=0.1``, one or both of them.

    A class name may hold colons: the last one ends it.
    """
    name, _, limits = text.rpartition(":")
    pairs = dict(part.split("=", 1) for part in limits.split(",") if "=" in part)
    try:
        found = {key.strip(): float(value) for key, value in pairs.items()}
    except ValueError:
        found = {}
    known = {field.name for field in fields(ClassLimits)}
    if not name or not found or not set(found) <= known:
        raise InvalidInput("--class-slo", "not of the form CLASS:ttft_p95_s=2,tpot_p95_s=0.1")
    return name, ClassLimits(**found)


@app.command("start")
def start(
    ctx: typer.Context,
    name: str,
    *,
    workload: Annotated[str, typer.Option(help="Workload id.")],
    target: Annotated[str, typer.Option(help="Target id.")],
    objective: Annotated[Objective, typer.Option(help="What is better.")] = Objective.THROUGHPUT,
    concurrency: Annotated[int, typer.Option(help="Requests in flight to serve.")] = 16,
    budget_s: Annotated[float, typer.Option(help="Engine time it may take, seconds.")] = 1800.0,
    technique: Annotated[list[str] | None, typer.Option(help="Key; repeat it. None: all.")] = None,
    dtype: Annotated[str | None, typer.Option(help="Number format of the baseline.")] = None,
    baseline: Annotated[
        str | None, typer.Option(help='Start from your own command: "vllm serve ...".')
    ] = None,
    ladder_top: Annotated[int, typer.Option(help="Highest load of the baseline's ladder.")] = 32,
    confirm: Annotated[
        bool, typer.Option(help="Measure the finalist on held-out requests as well.")
    ] = True,
    min_top1_agreement: Annotated[
        float, typer.Option(help="Least share of the baseline's tokens to keep.")
    ] = 0.9,
    class_slo: Annotated[
        list[str] | None,
        typer.Option(help="Limits of a class: chat:ttft_p95_s=2,tpot_p95_s=0.1; repeat it."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Queue a study."""
    class_limits = dict(class_limit(text) for text in class_slo or ())
    with connect(ctx) as client:
        study = client.create_study(
            name=name,
            workload_id=workload,
            target_id=target,
            goal=Goal(
                objective=objective,
                concurrency=concurrency,
                min_top1_agreement=min_top1_agreement,
                class_limits=class_limits,
            ),
            baseline=None if dtype is None else Levers(dtype=dtype),
            baseline_command=baseline,
            techniques=technique,
            budget_s=budget_s,
            ladder_top=ladder_top,
            confirm=confirm,
        )
    _show(study, as_json=as_json)


@app.command("show")
def show(ctx: typer.Context, study: str, *, as_json: Json = False) -> None:
    """A study with its trials and what is still planned."""
    with connect(ctx) as client:
        _show(client.study(study), as_json=as_json)


@app.command("watch")
def watch(
    ctx: typer.Context,
    study: str,
    *,
    last_id: Annotated[int, typer.Option(help="Begin after this event.")] = 0,
    as_json: Json = False,
) -> None:
    """Follow a study to its end; exits 0 done, 1 failed or infeasible, 4 inconclusive."""
    with connect(ctx) as client:
        code = _follow(client, study, last_id, as_json=as_json)
    if code != Exit.OK:
        raise typer.Exit(code)


def _follow(client: Client, study_id: str, last_id: int, *, as_json: bool) -> Exit:
    for event in client.study_events(study_id, last_id):
        if as_json:
            print_json(json_value(event))
        else:
            console().print(_line(event), markup=False)
    found = client.study(study_id)
    if as_json:
        print_json({"study": found.id, "state": found.state.value})
    else:
        _show(found, as_json=as_json)
    return ENDINGS.get(found.state, Exit.OK)


def _line(event: EventView) -> str:
    told = ", ".join(f"{name} {value}" for name, value in event.body.items() if value is not None)
    return f"{event.at:%H:%M:%S}  {event.kind}  {told}"


@app.command("cancel")
def cancel(ctx: typer.Context, study: str, *, as_json: Json = False) -> None:
    """Ask for the end of a study."""
    with connect(ctx) as client:
        _show(client.cancel_study(study), as_json=as_json)


def _show(study: StudyView, *, as_json: bool) -> None:
    emit(study, COLUMNS, as_json=as_json)
    if as_json:
        return
    out = console()
    if study.options.baseline_command is not None:
        out.print(f"  baseline: {study.options.baseline_command}", markup=False, soft_wrap=True)
    for note in study.options.baseline_notes:
        out.print(f"    not kept: {note}", markup=False, soft_wrap=True)
    for trial in study.trials:
        out.print(f"  {trial.plan.title}: {_outcome(trial)}", markup=False)
        for point in trial.points:
            rate = point.throughput_tokens_per_s
            flaws = f"  ({', '.join(point.flaws)})" if point.flaws else ""
            role = "" if point.role is LoadRole.PROBE else f", {point.role.value}"
            out.print(
                f"    at {point.concurrency}{role}: {rate.value:.1f} tokens/s"
                f" [{rate.low:.1f}, {rate.high:.1f}]{flaws}",
                markup=False,
            )
    if study.state not in STUDY_OVER and study.plan:
        left_s = sum(plan.expected_s for plan in study.plan)
        out.print(f"  still planned: {len(study.plan)} trials, about {seconds_text(left_s)}")


def _outcome(trial: TrialView) -> str:
    why = trial.failure_kind or trial.reason
    return f"{trial.state.value} ({why})" if why else trial.state.value
