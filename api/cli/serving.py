"""`rooftune recommendation`, `review`, `deploy` and `deployment`."""

from typing import Annotated

import typer

from advisor.recommender.recommendation import Recommendation
from api.cli.answer import Column, Json, console, emit
from api.cli.connection import connect
from api.cli.listing import list_command
from api.client import Client
from api.report import print_recommendation
from api.schemas import RecommendationView

recommendations = typer.Typer(help="What studies recommend.", no_args_is_help=True)
reviews = typer.Typer(help="Decide on a recommendation.", no_args_is_help=True)
deployments = typer.Typer(help="What is served.", no_args_is_help=True)
COLUMNS = (
    Column(title="id", path="id"),
    Column(title="state", path="state"),
    Column(title="hash", path="hash"),
    Column(title="study", path="study_id"),
    Column(title="conclusive", path="body.conclusive"),
)
DEPLOYMENT_COLUMNS = (
    Column(title="id", path="id"),
    Column(title="name", path="name"),
    Column(title="state", path="state"),
    Column(title="wanted", path="wanted"),
    Column(title="reason", path="reason"),
    Column(title="url", path="url"),
)
ConfigHash = Annotated[
    str | None, typer.Option("--config", help="Hash of the configuration; default: the first.")
]
Comment = Annotated[str, typer.Option(help="Why.")]


@recommendations.command("show")
def show(ctx: typer.Context, recommendation: str, *, as_json: Json = False) -> None:
    """Verdicts and ranked configurations."""
    with connect(ctx) as client:
        found = client.recommendation(recommendation)
    emit(found, COLUMNS, as_json=as_json)
    if not as_json:
        print_recommendation(found.body, console())


@reviews.command("approve")
def approve(
    ctx: typer.Context,
    recommendation: str,
    *,
    config: ConfigHash = None,
    comment: Comment = "",
    as_json: Json = False,
) -> None:
    """Approve one configuration, so that it may be deployed."""
    with connect(ctx) as client:
        decided = _decide(client, recommendation, ("approve", config, comment))
    emit(decided, COLUMNS, as_json=as_json)


@reviews.command("reject")
def reject(
    ctx: typer.Context,
    recommendation: str,
    *,
    config: ConfigHash = None,
    comment: Comment = "",
    as_json: Json = False,
) -> None:
    """Reject the recommendation."""
    with connect(ctx) as client:
        decided = _decide(client, recommendation, ("reject", config, comment))
    emit(decided, COLUMNS, as_json=as_json)


def _decide(
    client: Client, recommendation_id: str, decision: tuple[str, str | None, str]
) -> RecommendationView:
    kind, config, comment = decision
    found = client.recommendation(recommendation_id)
    return client.review(
        recommendation_id,
        decision=kind,
        config_hash=_full_hash(found.body, config),
        recommendation_hash=found.hash,
        comment=comment,
    )


def _full_hash(body: Recommendation, config: str | None) -> str:
    """The hash that a prefix names, if it names one; else what was given."""
    if config is None:
        return body.best.config_hash
    matching = {item.config_hash for item in body.ranked if item.config_hash.startswith(config)}
    return matching.pop() if len(matching) == 1 else config


def deploy(
    ctx: typer.Context,
    name: str,
    *,
    recommendation: Annotated[str, typer.Option(help="Recommendation id.")],
    config: ConfigHash = None,
    as_json: Json = False,
) -> None:
    """Serve an approved configuration under a name."""
    with connect(ctx) as client:
        found = client.recommendation(recommendation)
        made = client.deploy(
            name=name,
            recommendation_id=recommendation,
            config_hash=_full_hash(found.body, config),
        )
    emit(made, DEPLOYMENT_COLUMNS, as_json=as_json)


list_command(
    deployments,
    "Deployments, newest first.",
    DEPLOYMENT_COLUMNS,
    page_of=lambda client, limit, cursor: client.deployments(limit=limit, cursor=cursor),
)


@deployments.command("show")
def show_deployment(ctx: typer.Context, deployment: str, *, as_json: Json = False) -> None:
    """One deployment."""
    with connect(ctx) as client:
        emit(client.deployment(deployment), DEPLOYMENT_COLUMNS, as_json=as_json)


@deployments.command("stop")
def stop(ctx: typer.Context, deployment: str, *, as_json: Json = False) -> None:
    """Drain and stop."""
    with connect(ctx) as client:
        emit(client.stop_deployment(deployment), DEPLOYMENT_COLUMNS, as_json=as_json)
