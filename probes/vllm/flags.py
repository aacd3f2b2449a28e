"""The flags that an installed engine has, as a script run by its own interpreter dumped them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from advisor.errors import InvalidInput

CPU = "cpu"
CUDA = "cuda"
BUILDS = (CPU, CUDA)
_SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagSchema:
    """What one engine installation is and accepts.

    `flags` holds the option strings of its server (``--max-num-seqs``). `serve_module` is what
    follows the interpreter to start the server: ``("-m", "package.module")``.
    """

    version: str
    distribution: str
    build: str
    serve_module: tuple[str, ...]
    flags: frozenset[str]

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
    """Refuse a command with a flag that this engine does not have, before it is started."""
    for argument in argv:
        name = argument.partition("=")[0]
        if name.startswith("--") and name not in schema.flags:
            raise InvalidInput(name, f"{schema.distribution} {schema.version} has no such flag")


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
