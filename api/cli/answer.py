"""How a command answers: JSON on standard output, or a table for people; and with which code."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from advisor.errors import (
    EngineFailed,
    InvalidInput,
    NotAllowed,
    NotFound,
    RooftuneError,
    Unavailable,
    UnknownName,
)
from api.codec import json_value
from api.schemas import Page
from api.wire import ApiProblem

T = TypeVar("T")
Json = Annotated[bool, typer.Option("--json", help="Answer in JSON on standard output.")]
UNAVAILABLE_FROM = 500
USAGE_PROBLEMS = ("invalid-request", "invalid-input", "unknown-name")


class Exit(IntEnum):
    """Exit codes of every command."""

    OK = 0
    NEGATIVE = 1
    USAGE = 2
    UNAVAILABLE = 3
    INCONCLUSIVE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table: its title and how an item's value is found in its JSON."""

    title: str
    path: str


def console() -> Console:
    """Standard output for people."""
    return Console(highlight=False)


def print_json(value: object) -> None:
    """Strict JSON: no NaN, no infinity."""
    print(json.dumps(value, ensure_ascii=False, allow_nan=False))


def emit(value: object, columns: Sequence[Column], *, as_json: bool) -> None:
    """One value as JSON, or its columns as lines."""
    held = json_value(value)
    if as_json:
        print_json(held)
        return
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for column in columns:
        table.add_row(column.title, text_of(held, column.path))
    console().print(table)


def emit_page(page: Page[T], columns: Sequence[Column], *, as_json: bool) -> None:
    """A list as JSON, or as a table."""
    held = json_value(page)
    if as_json:
        print_json(held)
        return
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column.title, overflow="fold")
    for item in held["items"]:
        table.add_row(*(text_of(item, column.path) for column in columns))
    console().print(table)
    if held["next"]:
        console().print(f"more: --cursor {held['next']}")


def text_of(held: object, path: str) -> str:
    """The value at a dotted path for a person; what is not there is a dash."""
    value = held
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return ", ".join(str(item) for item in value) or "-"
    return str(value)


def exit_code(error: RooftuneError) -> Exit:
    """What a failed command exits with."""
    match error:
        case ApiProblem(status=status) if status >= UNAVAILABLE_FROM:
            return Exit.UNAVAILABLE
        case ApiProblem(problem=problem) if problem.type.endswith(USAGE_PROBLEMS):
            return Exit.USAGE
        case Unavailable() | EngineFailed():
            return Exit.UNAVAILABLE
        case InvalidInput() | UnknownName():
            return Exit.USAGE
        case NotFound() | NotAllowed():
            return Exit.NEGATIVE
        case _:
            return Exit.NEGATIVE


def fail(error: RooftuneError, *, as_json: bool) -> Exit:
    """Report an error where it belongs and say with which code to exit."""
    code = exit_code(error)
    if as_json:
        held: dict[str, object] = {"message": str(error), "exit_code": int(code)}
        data = vars(error).items()  # typer hangs private ones of its own on errors
        held |= {name: json_value(value) for name, value in data if not name.startswith("_")}
        print_json({"error": held})
    else:
        Console(stderr=True, highlight=False).print(f"error: {error}", markup=False, soft_wrap=True)
    return code
