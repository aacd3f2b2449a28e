"""What is right and wrong with this installation, check by check, each with its remedy.

The machine and the agent's side are looked at by `probes.installation` in a process of its own; the
service's own side is looked at here. Nothing is changed and no engine is started.
"""

import fcntl
import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from advisor.errors import InvalidInput, RooftuneError, Unavailable
from advisor.techniques import TECHNIQUES, Technique
from api.children import answers, check_free
from api.settings import UpSettings
from api.up import CHECKOUT, ENGINE_PYTHON
from db import migrate
from db.address import parsed
from db.embedded import MAJOR_SEEN
from db.postgres import binaries

LOOK_TIMEOUT_S = 120.0
CONNECT_TIMEOUT_S = 5
TAIL_CHARACTERS = 600
SHOWN_MOST = 6
OPEN_TO_OTHERS = 0o066
HEALTH = {"api": "readyz", "proxy": "healthz", "dashboard": "_stcore/health"}


class Level(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One check: what was looked at, what was found, what to do where it is not right."""

    name: str
    level: Level
    found: str
    remedy: str = ""

    def __post_init__(self) -> None:
        if self.level is not Level.OK and not self.remedy:
            raise InvalidInput(f"finding.{self.name}", "says nothing about what to do")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What `probes.installation` said."""

    findings: tuple[Finding, ...]
    device_kind: str
    processor_flags: frozenset[str]


# What the preflight calls a level -> what it means for an installation.
_LEVELS = {"ok": Level.OK, "warning": Level.WARN, "missing": Level.FAIL}


def examine(
    *, data_dir: Path, settings: UpSettings, environment: Mapping[str, str]
) -> tuple[Finding, ...]:
    """Every check of the machine, the installation and the service on `data_dir`.

    Raises `Unavailable` when the agent's side cannot be looked at.
    """
    folder = data_dir.absolute()
    machine = look_at_machine(agent_environment(folder, settings, environment))
    return (
        *machine.findings,
        techniques_here(TECHNIQUES, machine),
        packages(pins(), installed_version),
        *data_folder(folder, owner=os.geteuid()),
        *database(folder, settings.database_url),
        *service(folder, settings.port_base),
    )


def agent_environment(
    folder: Path, settings: UpSettings, environment: Mapping[str, str]
) -> dict[str, str]:
    """The environment that `rooftune up` would give its agent, as far as paths are concerned."""
    path = os.pathsep.join(filter(None, (str(CHECKOUT), environment.get("PYTHONPATH"))))
    engine = (settings.engine_python or ENGINE_PYTHON).absolute()
    return {
        **environment,
        "PYTHONPATH": path,
        "ROOFTUNE_DATA_DIR": str(folder),
        "ROOFTUNE_ENGINE_PYTHON": str(engine),
    }


def look_at_machine(environment: Mapping[str, str]) -> Machine:
    """Ask `probes.installation`; `Unavailable` when it does not answer."""
    argv = [sys.executable, "-P", "-m", "probes.installation"]
    try:
        done = subprocess.run(
            argv,
            env=dict(environment),
            capture_output=True,
            text=True,
            check=False,
            timeout=LOOK_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        what = f"this machine was not looked at within {LOOK_TIMEOUT_S:.0f} s"
        raise Unavailable(what, "see what keeps it busy and try again") from None
    try:
        return machine(json.loads(done.stdout))
    except (ValueError, KeyError):
        said = done.stderr.strip()[-TAIL_CHARACTERS:] or "it printed nothing"
        raise Unavailable("the agent's side cannot be looked at", said) from None


def machine(held: Mapping[str, object]) -> Machine:
    """The answer of `probes.installation` as values; what is missing in it is a `KeyError`."""
    checks = held["checks"]
    flags = held["processor_flags"]
    if not isinstance(checks, list) or not isinstance(flags, list):
        raise KeyError("checks")
    return Machine(
        findings=tuple(
            Finding(
                name=item["name"],
                level=_LEVELS[item["level"]],
                found=item["found"],
                remedy=item["remedy"],
            )
            for item in checks
        ),
        device_kind=str(held["device_kind"]),
        processor_flags=frozenset(str(flag) for flag in flags),
    )


def techniques_here(techniques: Iterable[Technique], found: Machine) -> Finding:
    """Which techniques this processor cannot have; a fact about it, not a fault."""
    excluded = [
        f"{item.title} (needs one of {', '.join(item.cpu_features)})"
        for item in techniques
        if found.device_kind == "cpu"
        and item.cpu_features
        and not found.processor_flags.intersection(item.cpu_features)
    ]
    said = f"not on this processor: {'; '.join(excluded)}" if excluded else "all can be tested"
    return Finding(name="techniques", level=Level.OK, found=said)


def pins() -> dict[str, str]:
    """What the service's requirements pin; empty where they are not beside the program."""
    try:
        text = (CHECKOUT / "requirements" / "service.txt").read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    return dict(re.findall(r"^([\w.\[\]-]+)==([\w.+!-]+)", text, re.MULTILINE))


def installed_version(package: str) -> str | None:
    """The installed release of a package in this environment."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def packages(pinned: Mapping[str, str], installed: Callable[[str], str | None]) -> Finding:
    """The service's environment against its pins: a missing one fails, another release warns."""
    name = "service packages"
    found = {package: installed(package) for package in pinned}
    missing = [package for package, held in found.items() if held is None]
    other = [
        f"{package} {held} (pinned {pinned[package]})"
        for package, held in found.items()
        if held not in {None, pinned[package]}
    ]
    if missing:
        said = f"not installed: {_some(missing)}"
        return Finding(name=name, level=Level.FAIL, found=said, remedy="run `make setup`")
    if other:
        return Finding(name=name, level=Level.WARN, found=_some(other), remedy="run `make setup`")
    said = f"{len(pinned)} as pinned" if pinned else "no requirements beside the program"
    return Finding(name=name, level=Level.OK, found=said)


def _some(items: Sequence[str]) -> str:
    more = len(items) - SHOWN_MOST
    return ", ".join(items[:SHOWN_MOST]) + (f" and {more} more" if more > 0 else "")


def data_folder(folder: Path, *, owner: int) -> list[Finding]:
    """Ours alone: others may pass through (the database's user has to), not look or write."""
    if not folder.is_dir():
        said = f"{folder} is not there yet; `rooftune up` makes it"
        return [Finding(name="data folder", level=Level.OK, found=said)]
    findings = [_private("data folder", folder, owner=owner, wanted="0711", closed=OPEN_TO_OTHERS)]
    for name, path in {
        "key file": folder / "admin.key",
        "database password": folder / "postgres" / "password",
    }.items():
        if path.is_file():
            findings.append(_private(name, path, owner=owner, wanted="0600", closed=0o077))
    return findings


def _private(name: str, path: Path, *, owner: int, wanted: str, closed: int) -> Finding:
    """Whether `path` belongs to `owner` and has none of the `closed` bits."""
    held = path.stat()
    mode = stat.S_IMODE(held.st_mode)
    said = f"{path}, mode {mode:04o}"
    if held.st_uid != owner:
        remedy = f"run as its owner (uid {held.st_uid}), or name another folder with --data-dir"
        return Finding(name=name, level=Level.FAIL, found=f"{path} is not ours", remedy=remedy)
    if mode & closed:
        remedy = f"others can read or write there: chmod {wanted} {path}"
        return Finding(name=name, level=Level.FAIL, found=said, remedy=remedy)
    return Finding(name=name, level=Level.OK, found=said)


def database(folder: Path, url: str | None) -> list[Finding]:
    """The given server and its schema, or the binaries of the private one."""
    if url is not None:
        return [given_database(url)]
    seen = folder / "postgres" / "data" / MAJOR_SEEN
    try:
        major = int(seen.read_text(encoding="utf-8"))
    except (FileNotFoundError, PermissionError):  # only its own user may look; then the newest
        major = None
    try:
        chosen = binaries(major)
    except Unavailable as error:
        return [
            Finding(name="database", level=Level.FAIL, found=error.what, remedy=error.remedy),
        ]
    said = f"private PostgreSQL {chosen.major}; `rooftune up` starts and migrates it"
    return [Finding(name="database", level=Level.OK, found=said)]


def given_database(url: str) -> Finding:
    """A server of the user's: does it answer, and is its schema this program's. No password."""
    try:
        address = parsed(url)
        patient = address.update_query_dict({"connect_timeout": str(CONNECT_TIMEOUT_S)})
        found = migrate.current(patient.render_as_string(hide_password=False))
    except Unavailable as error:
        return Finding(name="database", level=Level.FAIL, found=error.what, remedy=error.remedy)
    except RooftuneError as error:
        remedy = "correct DATABASE_URL: postgresql://user:password@host/database"
        return Finding(name="database", level=Level.FAIL, found=str(error), remedy=remedy)
    return revision(found, migrate.head())


def revision(found: str | None, wanted: str | None) -> Finding:
    """The schema's revision; an empty database is migrated by the first start."""
    if found == wanted:
        return Finding(name="database", level=Level.OK, found=f"answers, schema {found}")
    if found is None:
        remedy = "`rooftune up` makes the tables"
        return Finding(name="database", level=Level.WARN, found="answers, empty", remedy=remedy)
    remedy = "`rooftune up` migrates an older schema; a newer one needs the program that made it"
    said = f"schema {found}, this program has {wanted}"
    return Finding(name="database", level=Level.FAIL, found=said, remedy=remedy)


def service(
    folder: Path,
    port_base: int,
    healthy: Callable[[str], bool] = answers,
    free: Callable[[int, str], None] = check_free,
) -> list[Finding]:
    """The health of the service that runs on the folder, or whether its ports are free."""
    if held(folder / "service.lock"):
        return running(folder / "service.json", healthy)
    findings = []
    for offset, name in enumerate(HEALTH):
        try:
            free(port_base + offset, name)
        except Unavailable as error:
            found, remedy = error.what, error.remedy
            findings.append(
                Finding(name=f"{name} port", level=Level.FAIL, found=found, remedy=remedy)
            )
    if not findings:
        said = f"not running; ports {port_base} to {port_base + len(HEALTH) - 1} are free"
        findings.append(Finding(name="service", level=Level.OK, found=said))
    return findings


def running(state_file: Path, healthy: Callable[[str], bool]) -> list[Finding]:
    """Every part of the running service; its state file says where they are."""
    try:
        urls = json.loads(state_file.read_text(encoding="utf-8"))["urls"]
        addresses = {name: str(urls[name]) for name in HEALTH}
    except (OSError, ValueError, KeyError):
        remedy = "wait until it is up; if it stays so, stop and start it"
        said = "running, but it does not say where"
        return [Finding(name="service", level=Level.WARN, found=said, remedy=remedy)]
    findings = []
    for name, address in addresses.items():
        if healthy(f"{address}/{HEALTH[name]}"):
            findings.append(Finding(name=name, level=Level.OK, found=f"answers at {address}"))
            continue
        remedy = f"see logs/{name}.log in the data folder"
        said = f"does not answer at {address}"
        findings.append(Finding(name=name, level=Level.FAIL, found=said, remedy=remedy))
    return findings


def held(lock: Path) -> bool:
    """Whether a supervisor holds the folder's lock. The file is not made and not kept."""
    try:
        stream = lock.open(encoding="utf-8")
    except OSError:
        return False
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def verdict(findings: Collection[Finding]) -> str:
    """The summary in a line: ``18 checks: 16 ok, 1 warning, 1 failed``."""
    count = {level: sum(item.level is level for item in findings) for level in Level}
    warnings = "1 warning" if count[Level.WARN] == 1 else f"{count[Level.WARN]} warnings"
    return f"{len(findings)} checks: {count[Level.OK]} ok, {warnings}, {count[Level.FAIL]} failed"
