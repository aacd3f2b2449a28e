"""Checks this machine before anything is installed: standard library, run by the system's Python.

`python3 -P probes/preflight.py` prints one line per check (ok, warning or missing, each with what
was found and what to do) and exits 1 when a line is `missing`, which is kept for what really
blocks. Reading the machine (`read_*`, `ask_*`) is apart from judging what was read (`judge_*`), so
that the judgements have tests.
"""

import argparse
import ctypes
import dataclasses
import importlib.util
import json
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GIB = 1024**3

# The engine (5 GB, with the CUDA libraries 10 GB), the service (1 GB), the demo model,
# what pip unpacks meanwhile.
DISK_NEEDED_BYTES = {"cpu": 12 * 10**9, "cuda": 20 * 10**9}
# What is left for data once both environments stand.
DISK_SPARE_BYTES = 2 * 10**9
# The engine holds 4.2 GB with the demo model, the service and its database about 1 GB.
MEMORY_NEEDED_BYTES = 6 * GIB
MEMORY_WANTED_BYTES = 8 * GIB
SHARED_MEMORY_WANTED_BYTES = GIB
OPEN_FILES_WANTED = 4096
PIP_TIMEOUT_S = 120.0

# Shared libraries the engine's wheels load but do not carry -> the Debian package that has them.
LIBRARIES = {"libnuma.so.1": "libnuma1", "libgomp.so.1": "libgomp1"}
# Any of these can run the browser tests; the first is the name of Debian's package and program.
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PACKAGES = {**LIBRARIES, BROWSERS[0]: BROWSERS[0]}


class Level(StrEnum):
    """How a check ended; only MISSING blocks."""

    OK = "ok"
    WARNING = "warning"
    MISSING = "missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One line of the report: what was looked at, what was found, what to do about it."""

    name: str
    level: Level
    found: str
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchOffer:
    """The torch wheel pip would install: its version and the CUDA packages it asks for here."""

    version: str
    cuda_packages: tuple[str, ...] = ()


def judge_python(version: tuple[int, int], *, has_venv: bool) -> Check:
    """The engine's wheels exist for Python 3.11 and 3.12."""
    found = f"{version[0]}.{version[1]}"
    if not (3, 11) <= version < (3, 13):
        remedy = "install Python 3.11 or 3.12 and run `make setup PYTHON=python3.11`"
        return Check(name="python", level=Level.MISSING, found=found, remedy=remedy)
    if not has_venv:
        remedy = f"Debian: apt-get install python{found}-venv"
        return Check(
            name="python", level=Level.MISSING, found=f"{found} without venv", remedy=remedy
        )
    return Check(name="python", level=Level.OK, found=found)


def judge_processor(machine: str, flags: frozenset[str]) -> Check:
    """The CPU engine needs AVX2 on x86-64; AVX-512 and AMX make it faster."""
    if machine in {"aarch64", "arm64"}:
        return Check(name="processor", level=Level.OK, found=machine)
    if machine not in {"x86_64", "AMD64"}:
        remedy = "the engine has wheels for x86-64 and aarch64 only"
        return Check(name="processor", level=Level.MISSING, found=machine, remedy=remedy)
    if "avx2" not in flags:
        remedy = "the engine's CPU kernels need AVX2: use a newer processor or expose it to this VM"
        found = f"{machine} without AVX2"
        return Check(name="processor", level=Level.MISSING, found=found, remedy=remedy)
    avx512 = "yes" if "avx512f" in flags else "no"
    amx = "yes" if "amx_tile" in flags else "no"
    found = f"{machine}, AVX2 yes, AVX-512 {avx512}, AMX {amx}"
    return Check(name="processor", level=Level.OK, found=found)


def judge_disk(free_bytes: int, *, needed_bytes: int, installed: bool) -> Check:
    """Room for both environments, or for data only once they stand."""
    found = f"{free_bytes / 10**9:.0f} GB free"
    if not installed and free_bytes < needed_bytes:
        remedy = f"free {needed_bytes / 10**9:.0f} GB where the checkout lies"
        return Check(name="disk", level=Level.MISSING, found=found, remedy=remedy)
    if free_bytes < DISK_SPARE_BYTES:
        remedy = f"keep {DISK_SPARE_BYTES / 10**9:.0f} GB free for the database, models and logs"
        return Check(name="disk", level=Level.WARNING, found=found, remedy=remedy)
    return Check(name="disk", level=Level.OK, found=found)


def judge_memory(total_bytes: int) -> Check:
    """Memory this process tree may use: the machine's, or the control group's limit when lower."""
    found = f"{total_bytes / GIB:.0f} GiB"
    if total_bytes < MEMORY_NEEDED_BYTES:
        remedy = "the engine with the demo model and the service need 6 GiB, better 8"
        return Check(name="memory", level=Level.MISSING, found=found, remedy=remedy)
    if total_bytes < MEMORY_WANTED_BYTES:
        remedy = "8 GiB leave room for a useful KV cache; close other programs"
        return Check(name="memory", level=Level.WARNING, found=found, remedy=remedy)
    return Check(name="memory", level=Level.OK, found=found)


def judge_shared_memory(total_bytes: int | None) -> Check:
    """The engine's processes exchange tensors through /dev/shm."""
    if total_bytes is None:
        remedy = "mount a tmpfs there; the engine's processes exchange data through it"
        return Check(name="shared memory", level=Level.WARNING, found="absent", remedy=remedy)
    found = f"{total_bytes / GIB:.1f} GiB"
    if total_bytes < SHARED_MEMORY_WANTED_BYTES:
        remedy = "containers give 64 MB by default: start yours with --shm-size=1g or more"
        return Check(name="shared memory", level=Level.WARNING, found=found, remedy=remedy)
    return Check(name="shared memory", level=Level.OK, found=found)


def judge_open_files(hard_limit: int) -> Check:
    """Every streamed request holds a socket on both sides of the proxy."""
    unlimited = hard_limit == resource.RLIM_INFINITY
    found = "unlimited" if unlimited else str(hard_limit)
    if unlimited or hard_limit >= OPEN_FILES_WANTED:
        return Check(name="open files", level=Level.OK, found=found)
    remedy = f"raise it: ulimit -Hn {OPEN_FILES_WANTED}, or LimitNOFILE in the unit file"
    return Check(name="open files", level=Level.WARNING, found=found, remedy=remedy)


def judge_library(library: str, *, present: bool) -> Check:
    """A shared library that the engine's wheels load but do not carry."""
    if present:
        return Check(name=library, level=Level.OK, found="present")
    remedy = (
        f"apt-get install {LIBRARIES[library]} (as root; elsewhere the package that has {library})"
    )
    return Check(name=library, level=Level.MISSING, found="absent", remedy=remedy)


def judge_tool(name: str, path: str | None, *, purpose: str) -> Check:
    """A program that is useful but blocks nothing."""
    if path is not None:
        return Check(name=name, level=Level.OK, found="present")
    remedy = f"{purpose}; Debian: apt-get install {name}"
    return Check(name=name, level=Level.WARNING, found="absent", remedy=remedy)


def judge_browser(path: str | None) -> Check:
    """The browser of the tests; they skip without one, and nothing else needs it."""
    if path is not None:
        return Check(name=BROWSERS[0], level=Level.OK, found="present, for tests")
    remedy = (
        f"the browser tests skip; apt-get install {BROWSERS[0]} (as root), or put one of"
        f" {', '.join(BROWSERS)} on the path"
    )
    return Check(name=BROWSERS[0], level=Level.WARNING, found="absent, for tests", remedy=remedy)


def judge_torch(pin: str | None, offer: TorchOffer | None) -> Check:
    """Whether pip's own settings lead to the CPU build of torch that the CPU engine needs.

    That build carries a local version (`+cpu`) which the public index does not have; under the
    plain version the index has the CUDA build, which needs several GB more and does not start here.
    """
    if pin is None:
        remedy = "requirements/engine-cpu.txt pins no torch: the checkout is incomplete"
        return Check(name="torch", level=Level.MISSING, found="no pin", remedy=remedy)
    remedy = (
        f"pip does not find the CPU build of torch {pin}. Give pip PyTorch's CPU wheel index "
        "through pip's own settings (PIP_EXTRA_INDEX_URL, extra-index-url in pip.conf, or "
        "PIP_FIND_LINKS for a folder of wheels) and run `make setup` again"
    )
    if offer is None:
        return Check(name="torch", level=Level.MISSING, found=f"{pin} not offered", remedy=remedy)
    if offer.cuda_packages:
        found = f"{offer.version}, the CUDA build ({len(offer.cuda_packages)} CUDA packages)"
        return Check(name="torch", level=Level.MISSING, found=found, remedy=remedy)
    return Check(name="torch", level=Level.OK, found=offer.version)


def pinned_version(requirements: str, package: str) -> str | None:
    """The version that the text of a requirements file pins for `package`, or None."""
    found = re.search(rf"^{re.escape(package)}\s*==\s*(\S+)", requirements, re.MULTILINE)
    return found.group(1) if found else None


def torch_offer(report: Mapping[str, object], machine: str) -> TorchOffer | None:
    """Read the first item of a `pip install --report`; None where pip would install nothing."""
    items = report.get("install")
    if not isinstance(items, list) or not items:
        return None
    metadata = items[0]["metadata"]
    requires = metadata.get("requires_dist", [])
    cuda = [
        name
        for name in requires
        if re.match(r"(nvidia|cuda)[-_]", name) and _applies(name, machine)
    ]
    return TorchOffer(version=metadata["version"], cuda_packages=tuple(cuda))


def _applies(requirement: str, machine: str) -> bool:
    """Whether a requirement's `platform_machine ==` marker, if it has one, names this machine."""
    named = re.search(r"platform_machine\s*==\s*['\"](\w+)['\"]", requirement)
    return named is None or named.group(1) == machine


def read_processor_flags(cpuinfo: str) -> frozenset[str]:
    """The feature flags of the first processor in the text of /proc/cpuinfo."""
    found = re.search(r"^(?:flags|Features)\s*:(.*)$", cpuinfo, re.MULTILINE)
    return frozenset(found.group(1).split()) if found else frozenset()


def read_memory_bytes(cgroup_limit: str, machine_bytes: int) -> int:
    """The lower of the machine's memory and the control group's limit (`max` means none)."""
    limit = cgroup_limit.strip()
    return min(machine_bytes, int(limit)) if limit.isdigit() else machine_bytes


def read_text(path: Path) -> str:
    """The text of a file of the kernel's, empty where this kernel has no such file."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""


def has_library(library: str) -> bool:
    """Whether the loader finds the library, tried in the way the engine will."""
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def ask_pip_for_torch(pin: str) -> TorchOffer | None:
    """Ask pip, with the user's own settings, which torch wheel it would install; None: no wheel.

    Debian's system Python has venv but no pip: a throw-away environment lends one.
    """
    with tempfile.TemporaryDirectory(prefix="rooftune-preflight-") as folder:
        python = sys.executable
        if importlib.util.find_spec("pip") is None:
            venv.create(folder, with_pip=True)
            python = str(Path(folder) / "bin" / "python")
        report = Path(folder) / "report.json"
        argv = [python, "-m", "pip", "install", "--dry-run", "--no-deps", "--ignore-installed"]
        argv += ["--quiet", "--disable-pip-version-check", "--report", str(report), f"torch=={pin}"]
        try:
            done = subprocess.run(argv, check=False, capture_output=True, timeout=PIP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return None
        if done.returncode != 0 or not report.exists():
            return None
        return torch_offer(json.loads(report.read_text(encoding="utf-8")), platform.machine())


def install_packages(checks: Sequence[Check]) -> bool:
    """Install missing system packages as root with apt-get; True when it was tried."""
    packages = [
        PACKAGES[check.name]
        for check in checks
        if check.level is not Level.OK and check.name in PACKAGES
    ]
    apt = shutil.which("apt-get")
    if not packages or apt is None or os.geteuid() != 0:
        return False
    print(f"preflight: installing {' '.join(packages)}", flush=True)
    quiet = subprocess.DEVNULL
    subprocess.run([apt, "update", "-qq"], check=False, stdout=quiet, stderr=quiet)
    argv = [apt, "install", "-y", "-qq", "--no-install-recommends", *packages]
    subprocess.run(argv, check=False, stdin=quiet, stdout=quiet)
    return True


def installed_browser() -> str | None:
    """The program of the first browser of `BROWSERS` on the path."""
    found = (shutil.which(name) for name in BROWSERS)
    return next((path for path in found if path is not None), None)


def look_at_tests() -> list[Check]:
    """What the tests need besides what everybody needs."""
    return [judge_browser(installed_browser())]


def look_at_libraries() -> list[Check]:
    """One check per shared library of the engine."""
    return [judge_library(name, present=has_library(name)) for name in LIBRARIES]


def look_at_torch(python: Check) -> Check:
    """The CPU build of torch that the engine's requirements pin; pip is only asked."""
    requirements = read_text(ROOT / "requirements" / "engine-cpu.txt")
    pin = pinned_version(requirements, "torch")
    if pin is None or python.level is not Level.OK:
        return judge_torch(pin, None)
    return judge_torch(pin, ask_pip_for_torch(pin))


def look(engine: str, *, ask_pip: bool = True) -> list[Check]:
    """Read this machine and judge it, in the order in which a person would repair it."""
    shm = Path("/dev/shm")  # noqa: S108 - looked at, not written to
    physical_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = read_text(Path("/sys/fs/cgroup/memory.max"))
    has_venv = importlib.util.find_spec("ensurepip") is not None
    python = judge_python(sys.version_info[:2], has_venv=has_venv)
    flags = read_processor_flags(read_text(Path("/proc/cpuinfo")))
    free_bytes = shutil.disk_usage(ROOT).free
    installed = (ROOT / ".venv-engine" / "bin").exists()
    compiler = "the engine compiles kernels with it unless told to run eagerly"
    checks = [
        python,
        judge_processor(platform.machine(), flags),
        judge_memory(read_memory_bytes(limit, physical_bytes)),
        judge_disk(free_bytes, needed_bytes=DISK_NEEDED_BYTES[engine], installed=installed),
        judge_shared_memory(shutil.disk_usage(shm).total if shm.is_dir() else None),
        judge_open_files(resource.getrlimit(resource.RLIMIT_NOFILE)[1]),
        judge_tool("git", shutil.which("git"), purpose="needed to contribute, not to run"),
        judge_tool("g++", shutil.which("g++"), purpose=compiler),
        *look_at_libraries(),
    ]
    return [*checks, look_at_torch(python)] if ask_pip and engine == "cpu" else checks


def render(checks: Sequence[Check]) -> str:
    """The report for people: a line per check, the remedy indented below where there is one."""
    lines = []
    for check in checks:
        lines.append(f"{check.level.value:<8} {check.name:<14} {check.found}")
        if check.remedy:
            lines.append(f"{'':<8} -> {check.remedy}")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Report on this machine; 1 when something that blocks is missing."""
    parser = argparse.ArgumentParser(
        prog="preflight", description="Check this machine before installing Rooftune."
    )
    parser.add_argument(
        "--engine",
        choices=["cpu", "cuda"],
        default="cpu",
        help="which vLLM build will be installed",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    parser.add_argument(
        "--install", action="store_true", help="as root on Debian, install missing system packages"
    )
    parser.add_argument(
        "--tests", action="store_true", help="look only at what the tests need besides"
    )
    options = parser.parse_args(argv)
    if options.install:
        install_packages(look_at_tests() if options.tests else look_at_libraries())
    checks = look_at_tests() if options.tests else look(options.engine)
    blocked = any(check.level is Level.MISSING for check in checks)
    if options.json:
        print(
            json.dumps(
                {"ok": not blocked, "checks": [dataclasses.asdict(check) for check in checks]}
            )
        )
    else:
        print(render(checks))
    return 1 if blocked else 0


if __name__ == "__main__":
    sys.exit(main())
