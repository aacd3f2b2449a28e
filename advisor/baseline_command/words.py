"""A shell command that starts a vLLM server, as words: environment, flags and their values.

Nothing is run or looked up. A value may be a secret, so that what is said of one is its shape.
"""

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from advisor.errors import InvalidInput

FIELD = "baseline_command"
_CONTINUED = re.compile(r"\\\r?\n")
_ASSIGNMENT = re.compile(r"^([A-Za-z_][A-Za-z0-9_]*)=(.*)$", re.DOTALL)
_FLAG = re.compile(r"^--?[A-Za-z][A-Za-z0-9_.-]{0,79}$")
_NUMBER = re.compile(r"^-?\d+(\.\d+)?([eE]-?\d+)?[kKmMgGtT]?$")
# What `shape_of` says, where a command that was shown is read again.
_SHAPE = re.compile(r"<(a number|text|JSON|true or false|a shell variable|\d{1,4} values)>")
# The command ends where the shell starts another one or redirects its output.
_ENDS = re.compile(r"^(&&|\|\|?|;|&|&?\d?>>?.*|\d?<.*)$")
_MODULES = ("vllm.entrypoints.openai.api_server", "vllm.entrypoints.cli.main")
_IMAGE = re.compile(r"^[\w.\-/:]*vllm[\w.\-]*(:[\w.\-]+)?(@sha256:\w+)?$")
_CONTAINERS = frozenset({"docker", "podman", "nerdctl"})
# Options of a container's command whose value may look like the name of an image.
_NAMING = frozenset(
    {"--name", "--network", "--hostname", "-h", "-v", "--volume", "-w", "--workdir", "-l"}
)
_NOT_FOUND = (
    "holds neither `vllm serve` nor the module vllm.entrypoints.openai.api_server; paste the whole"
    " command that starts your server"
)


class Takes(Enum):
    """How many words after a flag belong to it."""

    NOTHING = "nothing"
    SWITCH = "true or false, if it says so"
    ONE = "one"
    MANY = "all up to the next flag"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeWords:
    """What the command sets in the environment, and the words after the server's own name."""

    environment: tuple[tuple[str, str], ...]
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One flag as written, with dashes for underscores, and its values."""

    name: str
    values: tuple[str, ...]


def serve_words(text: str) -> ServeWords:
    """Find the server's command in `text`; raises `InvalidInput` when there is none."""
    lexer = shlex.shlex(_CONTINUED.sub(" ", text), posix=True, punctuation_chars=";&|")
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        words = list(lexer)
    except ValueError:
        message = "a quotation mark is not closed; close it, or paste the command again"
        raise InvalidInput(FIELD, message) from None
    begin = _begin(words)
    if begin is None:
        raise InvalidInput(FIELD, _NOT_FOUND)
    rest = words[begin:]
    end = next((place for place, word in enumerate(rest) if _ENDS.match(word)), len(rest))
    return ServeWords(environment=tuple(_environment(words[:begin])), words=tuple(rest[:end]))


def _begin(words: Sequence[str]) -> int | None:
    """Place of the first word after the server's name."""
    for place, word in enumerate(words):
        name = word.rpartition("/")[2]
        following = words[place + 1] if place + 1 < len(words) else None
        if name in {"vllm", _MODULES[1]} and following == "serve":
            return place + 2
        if name in {_MODULES[0], "api_server.py"}:
            return place + 1
    return _after_image(words)


def _after_image(words: Sequence[str]) -> int | None:
    """After the image of a container whose entry point is the server."""
    if not _CONTAINERS & {word.rpartition("/")[2] for word in words}:
        return None
    for place, word in enumerate(words):
        if place and _IMAGE.match(word) and words[place - 1] not in _NAMING:
            return place + 1
    return None


def _environment(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    for word in words:
        given = _ASSIGNMENT.match(word.removeprefix("--env=").removeprefix("-e="))
        if given is not None:
            yield given.group(1), given.group(2)


def is_flag(word: str) -> bool:
    """Whether a word is a flag rather than a value, such as a negative number."""
    return word.startswith("-") and word != "-" and not _NUMBER.match(word)


def named(word: str) -> Flag:
    """A flag and what is joined to it: ``--a=b``, ``--a_b`` (read as ``--a-b``), ``-O3``."""
    written, joined, value = word.partition("=")
    level = re.fullmatch(r"(-O)(\d)", written)
    if level is not None:
        return Flag(name="-O", values=(level.group(2),))
    if not _FLAG.match(written):
        raise InvalidInput(FIELD, "holds a word that looks like a flag and is none; check it")
    head, dot, key = written.partition(".")
    if head.startswith("--"):
        head = "--" + head[2:].replace("_", "-")
    return Flag(name=head + dot + key, values=(value,) if joined else ())


def values_after(words: Sequence[str], takes: Takes) -> tuple[str, ...]:
    """The words at the beginning of `words` that belong to a flag without a joined value."""
    says = bool(words) and words[0].lower() in {"true", "false"}
    most = {Takes.NOTHING: 0, Takes.SWITCH: int(says), Takes.ONE: 1, Takes.MANY: len(words)}[takes]
    free = next((place for place, word in enumerate(words) if is_flag(word)), len(words))
    return tuple(words[: min(most, free)])


def switched_on(name: str) -> str:
    """The flag that ``--no-...`` switches off; any other as it is."""
    return "--" + name.removeprefix("--no-") if name.startswith("--no-") else name


def shape_of(values: Sequence[str]) -> str:
    """What may be said of values that are not kept."""
    if len(values) != 1:
        return f"{len(values)} values" if values else "no value"
    (value,) = values
    shown = _SHAPE.fullmatch(value)
    if shown is not None:
        return shown.group(1)
    if _NUMBER.match(value):
        return "a number"
    if value.startswith("$"):
        return "a shell variable"
    if value.lower() in {"true", "false"}:
        return "true or false"
    return "JSON" if _is_json(value) else "text"


def _is_json(value: str) -> bool:
    try:
        return isinstance(json.loads(value), dict | list)
    except ValueError:
        return False
