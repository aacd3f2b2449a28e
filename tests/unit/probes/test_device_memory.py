"""Who holds the device's memory, and what is refused for it before a start."""

import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.errors import EngineFailed, InvalidInput
from advisor.serving import FunctionalSettings, Levers, ServingConfig
from advisor.states import FailureKind
from advisor.units import GIB
from probes.device_memory import (
    Holder,
    MemoryReading,
    cpu_memory,
    memory_reader,
    parse_gpu_memory,
    refuse_held,
    why_held,
)

# nvidia-smi --query-gpu / --query-compute-apps, --format=csv,noheader,nounits, driver 570.
GPUS = "0, GPU-aa, 81920, 30720\n1, GPU-bb, 81920, 81000\n"
PROCESSES = "GPU-aa, 4242, VLLM::EngineCore, 50000\nGPU-bb, 7, python, [N/A]\n"
SHARED = MemoryReading(
    kind="cuda",
    total_bytes=80 * GIB,
    free_bytes=30 * GIB,
    holders=(Holder(pid=4242, name="VLLM::EngineCore", used_bytes=50 * GIB),),
)


def test_the_drivers_rows_are_read_by_device() -> None:
    """Processes of the other GPU are not named; a size that is not told is None."""
    first, second = (parse_gpu_memory(GPUS, PROCESSES, index) for index in (0, 1))

    assert (first.total_bytes, first.free_bytes) == (80 * GIB, 30 * GIB)
    assert [holder.pid for holder in first.holders] == [4242]
    assert second.holders == (Holder(pid=7, name="python", used_bytes=None),)
    assert second.holders[0].text == "pid 7 (python)"


@pytest.mark.parametrize(
    "gpus, processes, index",
    [
        (GPUS, PROCESSES, 2),
        ("0, GPU-aa, 81920\n", "", 0),
        ("0, GPU-aa, [N/A], [N/A]\n", "", 0),
        (GPUS, "GPU-aa, 4242\n", 0),
    ],
)
def test_other_rows_are_refused(gpus: str, processes: str, index: int) -> None:
    """No figure is made up of a row that is not understood."""
    with pytest.raises(InvalidInput, match="nvidia-smi"):
        parse_gpu_memory(gpus, processes, index)


def test_a_shared_gpu_refuses_before_the_start_and_names_its_user(shared: Path) -> None:
    """Case E-08: 72 GiB asked, 30 free; at most 0.375 starts, with about 12 GiB for the cache."""
    given = json.loads((shared / "cases" / "e08_shared_gpu.json").read_text())
    reading = replace(
        SHARED,
        total_bytes=round(given["gpu_total_gib"] * GIB),
        free_bytes=round(given["gpu_free_gib"] * GIB),
    )
    asked = given["requested_gpu_memory_utilization"]
    non_kv = round((given["weights_gib"] + given["non_kv_overhead_gib"]) * GIB)
    config = ServingConfig(levers=Levers(gpu_memory_utilization=asked))
    why = why_held(reading, config, non_kv_bytes=non_kv)

    assert why is not None
    assert "GPU still held by pid 4242 (VLLM::EngineCore, 50.0 GiB)" in why
    assert "72.0 GiB asked" in why
    assert "is 0.375, with at most 12.0 GiB for the KV cache" in why
    fitting = config.changed({"gpu_memory_utilization": 0.375})
    assert why_held(reading, fitting, non_kv_bytes=non_kv) is None


def test_a_process_that_the_driver_does_not_show_is_not_made_up() -> None:
    """In a container the others are invisible; our own processes are not to blame."""
    why = why_held(SHARED, ServingConfig(), non_kv_bytes=0, ours=[4242])

    assert why is not None
    assert "does not name here" in why


def test_a_held_device_is_its_own_kind_of_failure() -> None:
    """Case E-22: never out of memory, which would be the configuration's."""
    with pytest.raises(EngineFailed, match="still held by pid 4242") as failure:
        refuse_held(lambda: SHARED, ServingConfig(), non_kv_bytes=0, settle_s=0.0)

    assert failure.value.kind == FailureKind.DEVICE_HELD


def test_memory_that_comes_free_a_moment_later_refuses_nothing() -> None:
    """A driver needs a moment after the kill."""
    readings = iter([SHARED, replace(SHARED, free_bytes=80 * GIB)])

    refuse_held(lambda: next(readings), ServingConfig(), non_kv_bytes=0, settle_s=30.0)

    assert next(readings, None) is None


def test_a_device_that_cannot_be_asked_refuses_nothing() -> None:
    """The engine itself will say so then."""
    asked = threading.Event()

    def silent() -> None:
        asked.set()

    refuse_held(silent, ServingConfig(), non_kv_bytes=0)

    assert asked.is_set()


def test_a_cpu_refuses_what_fits_it_but_not_beside_the_others() -> None:
    """What the machine could never hold is the configuration's fault: the engine says so."""
    reading = replace(SHARED, kind="cpu")
    functional = FunctionalSettings(kv_cache_space_gib=20)
    config = ServingConfig(functional=functional)

    assert why_held(reading, config, non_kv_bytes=5 * GIB) is None
    held = why_held(reading, config, non_kv_bytes=15 * GIB)
    assert held is not None
    assert "memory still held by pid 4242" in held
    assert why_held(reading, config, non_kv_bytes=70 * GIB) is None


def test_this_machine_can_be_asked() -> None:
    """The CPU's reader is the kernel's own figures."""
    reading = memory_reader("cpu", "cpu0")()

    assert reading is not None
    assert 0 < reading.free_bytes <= reading.total_bytes
    assert cpu_memory().kind == "cpu"
