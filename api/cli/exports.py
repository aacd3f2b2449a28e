"""`rooftune recommendation export`: a recommendation as a file to hand on."""

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from advisor.errors import InvalidInput
from api.cli.answer import Json, console, print_json
from api.cli.connection import connect
from api.client import Client
from api.codec import json_value


class Format(StrEnum):
    """What a recommendation is written as."""

    HTML = "html"
    MARKDOWN = "md"
    JSON = "json"


def export(
    ctx: typer.Context,
    recommendation: str,
    *,
    form: Annotated[Format, typer.Option("--format", help="What to write.")] = Format.HTML,
    out: Annotated[Path | None, typer.Option(help="The file; default: standard output.")] = None,
    as_json: Json = False,
) -> None:
    """Write the report: one HTML file without outside parts, Markdown, or the bundle as JSON."""
    with connect(ctx) as client:
        text = _text(client, recommendation, form)
    if out is not None:
        _write(out, text)
    if as_json:
        held = {"format": form.value, "file": None if out is None else str(out)}
        print_json(held | ({"content": text} if out is None else {"bytes": len(text.encode())}))
    elif out is None:
        print(text)
    else:
        console().print(f"wrote {out}", markup=False, soft_wrap=True)


def _text(client: Client, recommendation: str, form: Format) -> str:
    if form is not Format.JSON:
        return client.recommendation_report(recommendation, form.value)
    held = json_value(client.recommendation(recommendation))
    return json.dumps(held, ensure_ascii=False, allow_nan=False, indent=1)


def _write(out: Path, text: str) -> None:
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidInput("--out", f"cannot be written: {error.strerror}") from error
