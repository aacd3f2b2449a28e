"""Accelerators as drivers describe them: reports written like nvidia-smi's and NVML's."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from advisor.errors import InvalidInput
from advisor.hardware import CATALOGUE
from advisor.hardware.live import SeenDevice, describe, recognise
from probes.accelerators import SMI_FIELDS, live_devices, parse_smi
from probes.installation import gpu_names
from probes.scripts import device as script

H100 = (
    "NVIDIA H100 80GB HBM3, 81559, 9.0, 700.00, 700.00, 1980, 1980, 5, 5, 16, 16, Disabled,"
    " 570.124.06"
)
CAPPED = (
    "NVIDIA H100 80GB HBM3, 81559, 9.0, 450.00, 700.00, 1200, 1980, 5, 5, 8, 16, Enabled,"
    " 570.124.06"
)
CONSUMER = (
    "NVIDIA GeForce RTX 4090, 24564, 8.9, 450.00, 450.00, [N/A], 3105, 1, 4, 16, 16, [N/A],"
    " 565.57.01"
)
TORCH_H100 = {
    "name": "NVIDIA H100 80GB HBM3",
    "memory_bytes": 85_029_158_912,
    "multiprocessors": 132,
    "compute_capability": "9.0",
}
NVML_H100 = {
    "name": "NVIDIA H100 80GB HBM3",
    "memory_bytes": 85_520_809_984,
    "power_limit_mw": 700_000,
    "default_power_mw": 700_000,
    "application_clock_mhz": 1980,
    "most_clock_mhz": 1980,
    "pcie_generation": 5,
    "most_pcie_generation": 5,
    "pcie_lanes": 16,
    "most_pcie_lanes": 16,
    "nvlink_links": 18,
    "mig_enabled": False,
    "driver": "570.124.06",
}


def report(**answers: object) -> Mapping[str, object]:
    """What the script prints, with nothing answered but `answers`."""
    silent = {"torch": None, "nvml": None, "smi": None, "smi_fields": list(SMI_FIELDS)}
    return {**silent, **answers}


def test_a_row_of_nvidia_smi_is_a_device() -> None:
    """Numbers in base units; what the driver does not tell is None."""
    whole, consumer = parse_smi(f"{H100}\n\n{CONSUMER}\n")

    assert whole.memory_bytes == 81559 * 2**20
    assert (whole.compute_capability, whole.mig_enabled) == ("9.0", False)
    assert (consumer.sm_clock_mhz, consumer.mig_enabled) == (None, None)
    assert consumer.pcie_generation == 1


@pytest.mark.parametrize(
    "text,said",
    [
        (f"{H100}\nNVIDIA H100", "line 2"),
        (H100.replace("81559", "lots"), "line 1.*memory_bytes"),
    ],
)
def test_a_broken_row_names_its_line(text: str, said: str) -> None:
    """Never a device made of other columns."""
    with pytest.raises(InvalidInput, match=said):
        parse_smi(text)


def test_the_script_asks_for_the_fields_that_are_read() -> None:
    """In their order."""
    assert tuple(script.SMI_FIELDS) == tuple(SMI_FIELDS)


def test_a_whole_card_is_found_without_a_note() -> None:
    """NVML for the limits, torch for the memory that a process gets."""
    (found,) = live_devices(report(nvml=[NVML_H100], torch=[TORCH_H100], smi=H100))

    assert found.card is CATALOGUE["h100-sxm"]
    assert found.notes == ()
    assert (found.seen.nvlink_links, found.seen.multiprocessors) == (18, 132)
    assert found.seen.memory_bytes == 85_029_158_912
    facts = found.facts()
    assert facts is not None
    assert facts.rate("bfloat16") == CATALOGUE["h100-sxm"].facts.rate("bfloat16")


def test_a_capped_and_sliced_card_says_so() -> None:
    """Power, clock, lanes and MIG each have a line; the low end of the rates falls."""
    (found,) = live_devices(report(smi=CAPPED))
    facts = found.facts()

    assert facts is not None
    assert [any(word in note for note in found.notes) for word in ("MIG", "power", "clock")] == (
        [True] * 3
    )
    assert any("x8 instead of x16" in note for note in found.notes)
    assert facts.rate("bfloat16").low == pytest.approx(0.8 * facts.rate("bfloat16").value)
    assert "h100-sxm of the catalogue" in describe(found)


def test_a_slice_has_its_part_of_the_card() -> None:
    """2g.20gb: two sevenths of the arithmetic, a quarter of memory and bandwidth."""
    live = recognise(SeenDevice(name="NVIDIA H100 80GB HBM3 MIG 2g.20gb"))
    facts, whole = live.facts(), CATALOGUE["h100-sxm"].facts

    assert facts is not None
    assert facts.rate("bfloat16").value == pytest.approx(2 / 7 * whole.rate("bfloat16").value)
    assert facts.bandwidth_bytes_per_s.value == pytest.approx(whole.bandwidth_bytes_per_s.value / 4)
    assert facts.memory_bytes == pytest.approx(whole.memory_bytes / 4)
    assert "29%" in live.notes[0]


def test_a_card_with_other_memory_than_its_name_is_noted() -> None:
    """A cut-down or virtual card."""
    live = recognise(SeenDevice(name="NVIDIA L40S", memory_bytes=24 << 30))

    assert "instead of the card's" in live.notes[0]


def test_an_unknown_card_is_named_and_not_guessed() -> None:
    """Its figures must be measured."""
    (found,) = live_devices(report(torch=[{**TORCH_H100, "name": "NVIDIA H100 NVL"}]))

    assert (found.card, found.facts()) == (None, None)
    assert "measure it" in describe(found)


def test_without_any_answer_there_is_no_accelerator() -> None:
    """A machine that has only its processor."""
    assert live_devices(report()) == ()
    assert live_devices(report(torch=[], nvml=[])) == ()


def test_a_broken_report_is_refused() -> None:
    """Another version's output must not become a device."""
    with pytest.raises(InvalidInput, match="device report"):
        live_devices(report(nvml=[{}]))
    with pytest.raises(InvalidInput, match="device report"):
        live_devices(report(torch=[{"name": "x"}]))


def test_the_script_reports_a_processor_where_no_library_answers() -> None:
    """It stands alone: run by an interpreter without torch, it still prints its answer."""
    path = Path(script.__file__)
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(path)],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": ""},
    )
    said = json.loads(done.stdout)

    assert (said["kind"], live_devices(said)) == ("cpu", ())
    assert set(said["unavailable"]) == {"torch", "nvml"}


def fake_program(folder: Path, lines: str) -> None:
    """A program called nvidia-smi that runs `lines` of shell."""
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{lines}\n", encoding="utf-8")
    program.chmod(0o755)


def test_the_doctor_says_which_card_of_the_catalogue_it_sees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what limits it."""
    fake_program(tmp_path, f"echo '{CAPPED}'")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    (line,) = gpu_names()

    assert "h100-sxm of the catalogue" in line
    assert "450 W of 700 W" in line


def test_an_older_driver_still_names_its_cards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It refuses a field that it does not know, and is asked for less."""
    old = 'case "$1" in *mig.mode*) exit 2;; *) echo "Tesla V100, 16384 MiB";; esac'
    fake_program(tmp_path, old)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")

    assert gpu_names() == ["Tesla V100, 16384 MiB"]
