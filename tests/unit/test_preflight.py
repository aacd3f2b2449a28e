"""The judgements of the preflight, and what it reads out of the system's and pip's answers."""

import json
import subprocess
import sys

import pytest

from probes import preflight
from probes.preflight import Check, Level, TorchOffer

AVX2 = frozenset({"avx", "avx2"})


@pytest.mark.parametrize(
    "version, level",
    [((3, 10), Level.MISSING), ((3, 11), Level.OK), ((3, 12), Level.OK), ((3, 13), Level.MISSING)],
)
def test_only_pythons_with_engine_wheels_pass(version: tuple[int, int], level: Level) -> None:
    """The engine's wheels exist for 3.11 and 3.12."""
    assert preflight.judge_python(version, has_venv=True).level is level


def test_a_python_without_venv_names_the_debian_package() -> None:
    """Debian splits venv off; the remedy is one command."""
    check = preflight.judge_python((3, 11), has_venv=False)

    assert check.level is Level.MISSING
    assert "python3.11-venv" in check.remedy


def test_the_processor_line_says_which_vector_units_there_are() -> None:
    """AVX2 is needed; AVX-512 and AMX are reported present or not."""
    plain = preflight.judge_processor("x86_64", AVX2)
    rich = preflight.judge_processor("x86_64", AVX2 | {"avx512f", "amx_tile"})

    assert plain.level is Level.OK
    assert plain.found.endswith("AVX-512 no, AMX no")
    assert rich.found.endswith("AVX-512 yes, AMX yes")


@pytest.mark.parametrize("machine, flags", [("x86_64", frozenset({"avx"})), ("riscv64", AVX2)])
def test_a_processor_without_kernels_blocks(machine: str, flags: frozenset[str]) -> None:
    """Neither x86-64 without AVX2 nor another architecture has wheels."""
    assert preflight.judge_processor(machine, flags).level is Level.MISSING


def test_disk_blocks_only_while_something_is_to_be_installed() -> None:
    """Little space is enough once both environments stand."""
    before = preflight.judge_disk(3 * 10**9, needed_bytes=12 * 10**9, installed=False)
    after = preflight.judge_disk(3 * 10**9, needed_bytes=12 * 10**9, installed=True)

    assert before.level is Level.MISSING
    assert after.level is Level.OK


@pytest.mark.parametrize("gib, level", [(4, Level.MISSING), (7, Level.WARNING), (8, Level.OK)])
def test_memory_warns_before_it_blocks(gib: int, level: Level) -> None:
    """The engine and the service run in 6 GiB and have room in 8."""
    assert preflight.judge_memory(gib * preflight.GIB).level is level


@pytest.mark.parametrize("total_bytes", [None, 64 * 1024**2])
def test_small_shared_memory_warns_with_the_container_flag(total_bytes: int | None) -> None:
    """A container's default of 64 MB is the usual cause."""
    assert preflight.judge_shared_memory(total_bytes).level is Level.WARNING


def test_a_missing_library_names_its_package() -> None:
    """vLLM's CPU build loads libnuma and does not carry it."""
    check = preflight.judge_library("libnuma.so.1", present=False)

    assert check.level is Level.MISSING
    assert "apt-get install libnuma1" in check.remedy


def test_a_missing_tool_only_warns() -> None:
    """git is for contributors; a user of an archive has none."""
    assert preflight.judge_tool("git", None, purpose="to contribute").level is Level.WARNING


def test_a_missing_browser_warns_with_the_command_to_install_it() -> None:
    """Only the browser tests need it, so it blocks nothing."""
    absent = preflight.judge_browser(None)
    present = preflight.judge_browser("found")

    assert absent.level is Level.WARNING
    assert "apt-get install chromium" in absent.remedy
    assert present.level is Level.OK


def test_what_can_be_installed_is_named_as_its_check_is() -> None:
    """`--install` finds the package by the name of the check that failed."""
    names = {preflight.judge_browser(None).name} | {
        preflight.judge_library(name, present=False).name for name in preflight.LIBRARIES
    }

    assert names == preflight.PACKAGES.keys()


def test_the_cpu_build_of_torch_passes() -> None:
    """A local version is offered where pip's settings name PyTorch's CPU index."""
    check = preflight.judge_torch("2.13.0", TorchOffer(version="2.13.0+cpu"))

    assert check == Check(name="torch", level=Level.OK, found="2.13.0+cpu")


@pytest.mark.parametrize(
    "offer", [None, TorchOffer(version="2.13.0", cuda_packages=("nvidia-cublas==13.1",))]
)
def test_a_missing_or_cuda_torch_explains_pips_own_settings(offer: TorchOffer | None) -> None:
    """The trap: the public index has no `+cpu`, and under the plain version the CUDA build."""
    check = preflight.judge_torch("2.13.0", offer)

    assert check.level is Level.MISSING
    assert "PIP_EXTRA_INDEX_URL" in check.remedy
    assert "://" not in check.remedy


def test_the_pin_is_read_from_the_requirements() -> None:
    """The version is written once; a longer package name is not mistaken for it."""
    requirements = "torchvision==1.0\ntorch==2.13.0  # the CPU build\n"

    assert preflight.pinned_version(requirements, "torch") == "2.13.0"
    assert preflight.pinned_version("numpy==2.4.6\n", "torch") is None


def test_cuda_packages_count_only_where_their_marker_applies() -> None:
    """The same wheel metadata asks for CUDA on x86-64 and for nothing on aarch64."""
    marker = '; platform_system == "Linux" and platform_machine == "x86_64"'
    requires = ["filelock", f"nvidia-cublas-cu12==12.9{marker}"]
    report = {"install": [{"metadata": {"version": "2.13.0", "requires_dist": requires}}]}

    on_x86 = preflight.torch_offer(report, "x86_64")
    on_arm = preflight.torch_offer(report, "aarch64")

    assert on_x86 == TorchOffer(version="2.13.0", cuda_packages=(requires[1],))
    assert on_arm == TorchOffer(version="2.13.0")
    assert preflight.torch_offer({"install": []}, "x86_64") is None


def test_processor_flags_come_from_the_first_processor() -> None:
    """Both the x86 and the Arm spelling of the line are read."""
    assert preflight.read_processor_flags("model : x\nflags\t\t: fpu avx2\n\nflags : sse\n") == {
        "fpu",
        "avx2",
    }
    assert preflight.read_processor_flags("Features\t: fp asimd\n") == {"fp", "asimd"}
    assert preflight.read_processor_flags("") == frozenset()


@pytest.mark.parametrize(
    "limit, expected", [("100\n", 100), ("max\n", 500), ("", 500), ("900", 500)]
)
def test_the_control_groups_limit_counts_when_lower(limit: str, expected: int) -> None:
    """A container's memory is its limit, not the machine's."""
    assert preflight.read_memory_bytes(limit, 500) == expected


def test_the_report_has_a_line_per_check_and_the_remedy_below() -> None:
    """People read what to do under what is missing."""
    checks = [
        Check(name="git", level=Level.OK, found="present"),
        Check(name="torch", level=Level.MISSING, found="not offered", remedy="do this"),
    ]

    lines = preflight.render(checks).splitlines()

    assert [line.split()[0] for line in lines] == ["ok", "missing", "->"]


def test_the_tests_need_only_what_everybody_does_and_a_browser(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`--tests` looks at nothing that `make setup` has looked at already, and blocks nothing."""
    code = preflight.main(["--tests", "--json"])
    held = json.loads(capsys.readouterr().out)

    assert code == 0
    assert [item["name"] for item in held["checks"]] == [preflight.BROWSERS[0]]


def test_it_needs_the_standard_library_only() -> None:
    """It runs before anything is installed: an isolated interpreter without site-packages can."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", preflight.__file__, "--help"], capture_output=True, check=False
    )

    assert done.returncode == 0, done.stderr.decode()
