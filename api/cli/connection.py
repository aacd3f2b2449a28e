"""Which service a command talks to: options, then the environment, then the data folder."""

import json
from dataclasses import dataclass
from pathlib import Path

import typer

from advisor.errors import Unavailable
from api.client import Client
from api.settings import DEFAULT_PORT, CliSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What was said before the subcommand."""

    url: str | None
    key: str | None
    project: str | None
    data_dir: Path


def options_of(ctx: typer.Context) -> Options:
    """The options before the subcommand."""
    options = ctx.find_root().obj
    if isinstance(options, Options):
        return options
    settings = CliSettings()
    return Options(url=None, key=None, project=None, data_dir=settings.data_dir)


def connect(ctx: typer.Context) -> Client:
    """A client of the service; raises `Unavailable` when nobody can tell where it is."""
    options, settings = options_of(ctx), CliSettings()
    url = options.url or settings.url or _written_url(options.data_dir)
    key = options.key or settings.api_key or _written_key(options.data_dir)
    return Client(
        url or f"http://127.0.0.1:{DEFAULT_PORT}", key, project=options.project or settings.project
    )


def _written_url(data_dir: Path) -> str | None:
    try:
        state = json.loads((data_dir / "service.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except json.JSONDecodeError:
        what = f"{data_dir}/service.json is no JSON"
        raise Unavailable(what, "name the service with --url") from None
    return str(state["urls"]["api"])


def _written_key(data_dir: Path) -> str | None:
    try:
        return (data_dir / "admin.key").read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return None
