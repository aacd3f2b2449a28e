"""The flags that an installed engine has, as a script run by its own interpreter dumped them."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from advisor.errors import InvalidInput

CPU = "cpu"
CUDA = "cuda"
BUILDS = (CPU, CUDA)
_SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"


_TAKES = {"int": "a whole number", "float": "a number", "bool": "no value"}
# What vLLM's parser takes for a whole number: 8192, 8k, 1.5K, 2Ki; -1 and auto where it decides.
_WHOLE = re.compile(r"-?\d+|\d+(?:\.\d+)?[kKmMgGtT]i?|auto")


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueRule:
    """What a flag takes: `kind` (bool, int, float, json, str), and the only values, if listed."""

    kind: str
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagSchema:
    """What one engine installation is and accepts.

    `flags` holds the option strings of its server (``--max-num-seqs``), `values` what those take
    by the same strings, as far as the dump says. `names` are those it knows of a kind
    ("quantization", "speculative_method"). `serve_module` is what follows the interpreter to start
    the server: ``("-m", "package.module")``. `commit` is None for a release.
    """

    version: str
    distribution: str
    build: str
    serve_module: tuple[str, ...]
    flags: frozenset[str]
    values: Mapping[str, ValueRule] = field(default_factory=dict)
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    commit: str | None = None
    torch_version: str | None = None
    cuda_version: str | None = None

    def __post_init__(self) -> None:
        if self.build not in BUILDS:
            raise InvalidInput("engine.build", f"{self.build!r} is none of {', '.join(BUILDS)}")


def read_schema(dump: Mapping[str, object]) -> FlagSchema:
    """The schema in the JSON that `dump_command` prints; a missing part raises `InvalidInput`."""
    flags = dump.get("flags")
    if not isinstance(flags, Mapping) or not flags:
        raise InvalidInput("engine.flags", "the dump names no flag")
    module = dump.get("serve_module")
    if not isinstance(module, list) or not module:
        raise InvalidInput("engine.serve_module", "the dump does not say how to serve")
    return FlagSchema(
        version=_text(dump, "vllm_version"),
        distribution=_text(dump, "distribution"),
        build=_text(dump, "build"),
        serve_module=tuple(str(part) for part in module),
        flags=frozenset(_options(flags)),
        values={f"--{name}": rule for name, rule in _rules(flags)},
        names=_names(dump.get("names")),
        commit=_optional(dump, "vllm_commit"),
        torch_version=_optional(dump, "torch_version"),
        cuda_version=_optional(dump, "cuda_version"),
    )


def dump_command(interpreter: str, launcher: str | None) -> list[str]:
    """The argv that prints an engine's flags as one JSON object."""
    if launcher is not None:
        return [interpreter, launcher, "flags"]
    return [interpreter, str(_SCRIPTS / "flags.py")]


def microbench_command(
    interpreter: str, launcher: str | None, *, threads: int, seconds: float
) -> list[str]:
    """The argv that measures the device and prints one JSON object."""
    script = [str(_SCRIPTS / "microbench.py")] if launcher is None else [launcher, "microbench"]
    return [interpreter, *script, "--threads", str(threads), "--seconds", f"{seconds:g}"]


def check_argv(argv: Sequence[str], schema: FlagSchema) -> None:
    """Refuse a command with a flag, or a value, that this engine does not take.

    Raises `InvalidInput` before anything is started; what the dump does not describe passes, as
    the engine itself has the last word.
    """
    for argument in argv:
        name, joined, value = argument.partition("=")
        if not name.startswith("--"):
            continue
        if name not in schema.flags:
            raise InvalidInput(name, f"{schema.distribution} {schema.version} has no such flag")
        if joined and (wrong := _wrong(name, value, schema)) is not None:
            raise InvalidInput(name, f"{wrong} ({schema.distribution} {schema.version})")


def _wrong(name: str, value: str, schema: FlagSchema) -> str | None:
    """What is wrong with a flag's value; None where nothing is known to be."""
    rule = schema.values.get(name)
    known = schema.names.get(name.removeprefix("--"), ())
    if known and value not in known:
        return f"knows no {value!r}, only {', '.join(known)}"
    if rule is None:
        return None
    if rule.choices and value not in rule.choices:
        return f"does not take {value!r}, only {', '.join(rule.choices)}"
    if rule.kind == "json":
        return _wrong_json(name, value, schema)
    readable = {"int": _WHOLE.fullmatch(value) is not None, "float": _is_number(value)}
    if rule.kind == "bool" or not readable.get(rule.kind, True):
        return f"does not take {value!r}, but {_TAKES[rule.kind]}"
    return None


def _wrong_json(name: str, value: str, schema: FlagSchema) -> str | None:
    """An object must be readable; a name may stand in its place."""
    if not value.startswith(("{", "[")):
        return None
    try:
        held = json.loads(value)
    except ValueError:
        return "is not readable as JSON"
    method = held.get("method") if isinstance(held, dict) else None
    known = schema.names.get("speculative_method", ())
    if name == "--speculative-config" and method is not None and known and method not in known:
        return f"knows no method {method!r}, only {', '.join(known)}"
    return None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _rules(flags: Mapping[str, object]) -> list[tuple[str, ValueRule]]:
    found = []
    for name, described in flags.items():
        if isinstance(described, Mapping):
            choices = described.get("choices")
            listed = choices if isinstance(choices, list) else []
            kind = str(described.get("type"))
            rule = ValueRule(kind=kind, choices=tuple(str(item) for item in listed))
            found.append((name, rule))
    return found


def _names(held: object) -> dict[str, tuple[str, ...]]:
    """Known names by kind; an older dump has none."""
    if not isinstance(held, Mapping):
        return {}
    return {
        str(kind): tuple(str(name) for name in names)
        for kind, names in held.items()
        if isinstance(names, list)
    }


def _options(flags: Mapping[str, object]) -> list[str]:
    """Option strings: a boolean flag of vLLM's parser has a ``--no-`` form too."""
    found = []
    for name, described in flags.items():
        found.append(f"--{name}")
        if isinstance(described, Mapping) and described.get("type") == "bool":
            found.append(f"--no-{name}")
    return found


def _text(dump: Mapping[str, object], name: str) -> str:
    value = dump.get(name)
    if not isinstance(value, str) or not value:
        raise InvalidInput(f"engine.{name}", "is missing in the dump")
    return value


def _optional(dump: Mapping[str, object], name: str) -> str | None:
    value = dump.get(name)
    return value if isinstance(value, str) and value else None
