"""The repository checks itself: names, budgets, documents, and arrows no import contract sees."""

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import pytest
from pydantic import AliasChoices
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings

from advisor import techniques

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGES = ("advisor", "api", "dashboard", "db", "probes")
# A junk drawer is a name that says nothing about what is inside; style and reasons: docs/adr/0010.
JUNK_DRAWERS = {"utils", "util", "helpers", "common", "misc", "core", "manager", "types"}
FILE_BUDGET_LINES = 400
FUNCTION_BUDGET_LINES = 60
# Run by the engine's interpreter, imported by no test.
ENGINE_RECORDERS = {
    ROOT / "tests" / "golden" / name / "record.py" for name in ("layouts", "scheduler")
}
ENGINE_LIBRARIES = {"gguf", "llmcompressor", "torch", "transformers", "vllm"}
IO_CALLS = {"open", "print", "input", "exec", "eval"}
HEAVY_MODULES = {
    *ENGINE_LIBRARIES,
    *("fastapi", "httpx", "procrastinate", "psycopg", "pydantic", "requests", "sqlalchemy"),
    "streamlit",
}
HOSTS = [
    r"pypi\.org", r"pythonhosted\.org", r"download\.pytorch\.org", r"huggingface\.co", r"//hf\.co",
    r"ghcr\.io", r"docker\.io", r"nvcr\.io", r"quay\.io", r"registry\.npmjs", r"proxy\.golang\.org",
    r"--(?:extra-)?index-url[ =]\S*//",
]  # fmt: skip
MACHINE_PATH = re.compile(r"(?<![\w.}\-/])/(?:work|root|tmp|home/\w+)(?![\w-])")
BINARY_ENDINGS = {".parquet", ".png", ".gz", ".zst", ".jpg"}


def tracked_files() -> list[Path]:
    """What git holds or would hold: tracked files and new ones it does not ignore."""
    argv = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, check=True)
    names = [name for name in done.stdout.decode().split("\0") if name]
    return sorted(path for name in names if (path := ROOT / name).is_file())


def shown(path: Path) -> str:
    """A path as a test's id."""
    return str(path.relative_to(ROOT))


FILES = tracked_files()
SOURCES = [path for path in FILES if path.suffix == ".py"]
CORE = [path for path in SOURCES if path.is_relative_to(ROOT / "advisor")]
# This file holds the patterns.
TEXTS = [path for path in FILES if path.suffix not in BINARY_ENDINGS and path != Path(__file__)]


def parse(path: Path) -> ast.Module:
    """The syntax tree of a source file."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def functions(path: Path) -> Iterator[Function]:
    """Every function and method of a file."""
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def imported(path: Path) -> set[str]:
    """The top-level packages a file imports, wherever in the file."""
    names: set[str] = set()
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize("path", SOURCES, ids=shown)
def test_a_file_is_named_after_a_thing_and_fits_in_a_head(path: Path) -> None:
    """A budget is raised by an ADR, not in passing (docs/adr/0010)."""
    long = [
        function.name
        for function in functions(path)
        if (function.end_lineno or function.lineno) - function.lineno >= FUNCTION_BUDGET_LINES
    ]

    assert path.stem not in JUNK_DRAWERS
    assert path.parent.name not in JUNK_DRAWERS
    assert len(path.read_text(encoding="utf-8").splitlines()) <= FILE_BUDGET_LINES
    assert long == []


@pytest.mark.parametrize("path", CORE, ids=shown)
def test_the_core_neither_opens_nor_prints(path: Path) -> None:
    """Builtins escape the import contract."""
    called = {
        node.func.id
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }

    assert called & IO_CALLS == set()


def test_only_the_engines_scripts_import_the_engines_libraries() -> None:
    """Everything else runs where they are not installed, tests included; a recorder is a script."""
    scripts = ROOT / "probes" / "scripts"
    outside = [
        path
        for path in SOURCES
        if not path.is_relative_to(scripts) and path not in ENGINE_RECORDERS
    ]

    assert [shown(path) for path in outside if imported(path) & ENGINE_LIBRARIES] == []


def test_importing_the_core_loads_no_database_no_web_and_no_engine() -> None:
    """Importing does nothing: every module of `advisor` in a fresh interpreter."""
    modules = sorted(
        shown(path).removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in CORE
    )
    code = f"import sys, importlib\nfor name in {modules}: importlib.import_module(name)\n"
    code += "print(*sorted({name.split('.')[0] for name in sys.modules}))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) & HEAVY_MODULES == set()


def words_of_techniques() -> set[str]:
    """Keys, titles and constants of the techniques, in the forms in which code could name them."""
    words: set[str] = set()
    for item in techniques.TECHNIQUES:
        words |= {item.key, item.key.replace("_", "-"), item.key.replace("_", " ")}
        words |= {item.title, item.title.split(" (")[0]}
    words |= {
        name
        for name, value in vars(techniques).items()
        if isinstance(value, techniques.Technique) and not name.startswith("_")
    }
    return {word.casefold() for word in words}


def test_no_technique_is_named_in_the_recommender() -> None:
    """Swap the measured effects and the verdicts follow: no name may matter."""
    files = [path for path in CORE if path.is_relative_to(ROOT / "advisor" / "recommender")]
    named = [
        (shown(path), word)
        for path in files
        for word in words_of_techniques()
        if word in path.read_text(encoding="utf-8").casefold()
    ]

    assert files
    assert named == []


def test_every_test_folder_has_its_line() -> None:
    """tests/README.md says what each folder is for and what it needs."""
    readme = (ROOT / "tests" / "README.md").read_text(encoding="utf-8")
    folders = {
        path.relative_to(ROOT / "tests").parts[0] for path in SOURCES if "tests" in path.parts
    }
    folders = {name for name in folders if not name.endswith(".py")}

    assert [name for name in sorted(folders) if f"`{name}/`" not in readme] == []


def test_every_marker_has_its_line() -> None:
    """A marker names a need; the need is explained where a contributor looks."""
    readme = (ROOT / "tests" / "README.md").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    markers = [line.split(":")[0] for line in project["tool"]["pytest"]["markers"]]

    assert [name for name in markers if f"`{name}`" not in readme] == []


@pytest.mark.parametrize("path", TEXTS, ids=shown)
def test_no_file_names_a_registry_or_a_path_of_somebodys_machine(path: Path) -> None:
    """Where packages come from is the user's own setting of pip, and a path is a setting too."""
    text = path.read_text(encoding="utf-8")
    found = [host for host in HOSTS if re.search(host, text)]
    found += MACHINE_PATH.findall(text)

    assert found == []


def test_nothing_is_kept_equal_by_a_comment() -> None:
    """What must stay equal in two places must stop being in two places."""
    phrase = re.compile(
        "keep (?:this |these )?in " + "sync|must stay (?:textually )?" + "identical"
    )

    assert [
        shown(path) for path in SOURCES if phrase.search(path.read_text(encoding="utf-8"))
    ] == []


def settings_classes() -> Iterator[type[BaseSettings]]:
    """The settings classes defined in any `settings.py` of ours."""
    for path in SOURCES:
        if path.stem == "settings" and path.relative_to(ROOT).parts[0] in PACKAGES:
            module = importlib.import_module(shown(path).removesuffix(".py").replace("/", "."))
            for value in vars(module).values():
                of_ours = isinstance(value, type) and value.__module__ == module.__name__
                if of_ours and issubclass(value, BaseSettings):
                    yield value


def variables(settings: type[BaseSettings], name: str, field: FieldInfo) -> set[str]:
    """The environment variables a field is read from: its aliases, when it has some."""
    alias = field.validation_alias
    if isinstance(alias, AliasChoices):
        return {str(choice).upper() for choice in alias.choices}
    if isinstance(alias, str):
        return {alias.upper()}
    return {f"{settings.model_config.get('env_prefix', '')}{name}".upper()}


def test_the_readme_has_every_setting_and_no_other() -> None:
    """A setting nobody can find is not one, and one that is only written down is a lie."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    names = {
        variable
        for settings in settings_classes()
        for name, field in settings.model_fields.items()
        for variable in variables(settings, name, field)
    }

    assert names
    assert sorted(name for name in names if f"`{name}`" not in readme) == []
    assert sorted(set(re.findall(r"`(ROOFTUNE_\w+)`", readme)) - names) == []


def test_every_target_has_a_bound_and_a_unit() -> None:
    """`make bench` and `make validate` compare with this file; its figures are the issues' own."""
    targets = tomllib.loads((ROOT / "docs" / "targets.toml").read_text(encoding="utf-8"))

    assert targets
    for name, row in targets.items():
        assert set(row) >= {"value", "unit", "better", "issue", "why"}, name
        assert row["better"] in {"lower", "higher"}, name
        assert isinstance(row["value"], int | float), name


def test_every_decision_is_in_the_index() -> None:
    """The index lists each record under its number and title, and nothing else."""
    folder = ROOT / "docs" / "adr"
    records = {path.name for path in FILES if path.parent == folder and path.name != "README.md"}
    linked = set(re.findall(r"\((\d{4}-[\w-]+\.md)\)", (folder / "README.md").read_text("utf-8")))

    assert records == linked


def test_a_version_is_pinned_once() -> None:
    """The requirement files of one environment do not repeat each other, and pin exactly."""
    seen: dict[str, str] = {}
    for name in ("service.txt", "dev.txt"):
        for line in (ROOT / "requirements" / name).read_text(encoding="utf-8").splitlines():
            if line and not line.startswith("#"):
                package, _, version = line.partition("==")
                assert version, line
                assert package.casefold() not in seen, line
                seen[package.casefold()] = version


def test_make_installs_the_quantizer_where_8_bit_weights_apply() -> None:
    """The Makefile looks for the features that the technique asks for, and for no other."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = re.search(r"grep -qwE '([\w|]+)' /proc/cpuinfo", makefile)

    assert named is not None
    assert set(named[1].split("|")) == set(techniques.technique("int8_weights").cpu_features)
