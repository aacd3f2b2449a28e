"""Parts of the agent that need neither database nor engine."""

import os
import threading
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
import zstandard

from advisor.errors import InvalidInput, Unavailable
from advisor.estimate import Source
from probes.device import device_class, device_facts, engine_threads
from probes.engine_log import packed_log
from probes.lease import DeviceHold
from probes.settings import AgentSettings, engine_environment
from probes.workplace import holder_is_dead, process_holder

MEASURED_RATES = {
    "bf16": {"value_flops_per_s": 1e11, "low": 9e10, "high": 2e11, "samples": 5},
    "fp32": {"value_flops_per_s": 2e11, "low": 1e11, "high": 3e11, "samples": 5},
}
MEASURED = {
    "device": "cpu",
    "device_name": "a processor",
    "threads": 2,
    "cpu_features": ["avx2", "fma"],
    "total_memory_bytes": 8 << 30,
    "memory_bandwidth": {"value_bytes_per_s": 2e10, "low": 1e10, "high": 3e10, "samples": 5},
    "matrix_rate": MEASURED_RATES,
}


@dataclass
class Renewals:
    """A lease in memory: renewed while `held`, unreachable while `away`."""

    held: bool = True
    away: bool = False
    released: list[bool] = field(default_factory=list)

    def renew(self) -> bool:
        if self.away:
            raise Unavailable("the database does not answer", "start it")
        return self.held

    def release(self) -> None:
        self.released.append(True)


def hold_of(renewals: Renewals, stop: threading.Event, reason: str | None = None) -> DeviceHold:
    return DeviceHold(token=1, renewals=renewals, ttl_s=0.6, stop=stop, watch=lambda: reason)


def test_a_benchmark_becomes_measured_facts_under_the_engines_dtype_names() -> None:
    """bf16 is bfloat16, every figure keeps its range and says that it was measured here."""
    facts = device_facts(MEASURED)

    assert facts.rate("bfloat16").value == 1e11
    assert facts.rate("float32").high == 3e11
    assert facts.bandwidth_bytes_per_s.source is Source.MEASURED
    assert facts.threads == 2


def test_a_rate_of_8_bit_products_is_taken_where_there_is_one() -> None:
    """A device that cannot run them says so in its output and has no such rate."""
    rate = {"value_flops_per_s": 4e11, "low": 3e11, "high": 5e11, "samples": 5}
    able = {**MEASURED, "matrix_rate": {**MEASURED_RATES, "int8": rate}, "skipped": {}}
    unable = {**MEASURED, "skipped": {"int8": "this vLLM has no _C library"}}

    assert device_facts(able).rate("int8").value == 4e11
    assert "int8" not in device_facts(unable).matrix_rate_flops_per_s


def test_a_benchmark_that_lacks_a_figure_is_refused() -> None:
    """A missing figure is not zero."""
    broken = {name: value for name, value in MEASURED.items() if name != "memory_bandwidth"}

    with pytest.raises(InvalidInput, match="microbench"):
        device_facts(broken)


@pytest.mark.parametrize(
    "features, name",
    [
        (["avx2", "avx512f", "amx_tile"], "cpu-4c-amx"),
        (["avx512f", "avx2"], "cpu-4c-avx512"),
        (["avx2"], "cpu-4c-avx2"),
        ([], "cpu-4c-generic"),
    ],
)
def test_the_strongest_instruction_set_names_the_class(features: list[str], name: str) -> None:
    """Equal devices share a class, and what decides the speed of arithmetic is in it."""
    assert device_class("cpu", "any", features, 4) == name


def test_an_accelerator_is_its_own_class() -> None:
    """Its name, in a form that fits a command line."""
    assert device_class("cuda", "NVIDIA H200 (141 GB)", [], 4) == "nvidia-h200-141-gb"


def test_the_engine_computes_on_at_least_one_thread() -> None:
    """A configured number wins."""
    assert engine_threads(None) >= 1
    assert engine_threads(7) == 7


def test_a_log_is_kept_from_its_end_and_removed(tmp_path: Path) -> None:
    """The failure stands at the end of a log; a log that was never written is None."""
    log = tmp_path / "engine.log"
    log.write_bytes(b"start " * 1000 + b"the end")

    packed = packed_log(log, 7)

    assert packed is not None
    assert zstandard.ZstdDecompressor().decompress(packed) == b"the end"
    assert not log.exists()
    assert packed_log(log, 7) is None


def test_a_lost_lease_interrupts_the_work_and_is_not_given_back() -> None:
    """The token belongs to somebody else by then."""
    renewals = Renewals(held=False)
    with hold_of(renewals, threading.Event()) as hold:
        hold.interruption.event.wait(5)

    assert hold.lost
    assert hold.interruption.reason == "the device lease was lost"
    assert renewals.released == []


def test_a_lease_that_cannot_be_renewed_runs_out() -> None:
    """A database that is away does not let two agents believe that they hold the device."""
    with hold_of(Renewals(away=True), threading.Event()) as hold:
        hold.interruption.event.wait(5)

    assert hold.lost


def test_a_stopping_agent_interrupts_its_work_and_gives_the_lease_back() -> None:
    """The first reason is kept."""
    renewals, stop = Renewals(), threading.Event()
    stop.set()
    with hold_of(renewals, stop) as hold:
        hold.interruption.event.wait(5)
        hold.interruption.set("something later")

    assert hold.interruption.reason == "the agent stops"
    assert renewals.released == [True]


def test_what_the_watch_says_interrupts_the_work() -> None:
    """A cancelled study ends its trial within about a second."""
    with hold_of(Renewals(), threading.Event(), "the study was cancelled") as hold:
        ended = hold.interruption.event.wait(5)

    assert ended
    assert hold.interruption.reason == "the study was cancelled"


def test_only_a_holder_of_this_host_that_no_longer_runs_is_dead() -> None:
    """A reused process identifier is another process; another host cannot be judged from here."""
    mine = process_holder("host")
    began = psutil.Process().create_time()

    assert not holder_is_dead(mine, "host")
    assert not holder_is_dead(mine, "other")
    assert holder_is_dead(f"host/{os.getpid()}/{began - 1000:.2f}", "host")
    assert holder_is_dead("host/4194305/1.0", "host")
    assert not holder_is_dead("somebody", "host")


def test_an_engine_does_not_see_the_databases_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs other people's code, which needs no password of ours."""
    monkeypatch.setenv("ROOFTUNE_DATABASE_URL", "postgresql://user:secret@host/db")
    monkeypatch.setenv("ROOFTUNE_PLANTED", "truth.json")
    environment = engine_environment()

    assert "secret" not in " ".join(environment.values())
    assert environment["ROOFTUNE_PLANTED"] == "truth.json"


def test_model_roots_are_separated_by_colons(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Links in them are resolved once; an empty list allows nothing."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.setenv("ROOFTUNE_DATABASE_URL", "postgresql://host/db")
    monkeypatch.setenv("ROOFTUNE_MODEL_ROOTS", f"{tmp_path / 'link'}:{tmp_path}")
    some = AgentSettings()
    monkeypatch.setenv("ROOFTUNE_MODEL_ROOTS", "")
    none = AgentSettings()

    assert some.allowed_roots == ((tmp_path / "real").resolve(), tmp_path.resolve())
    assert none.allowed_roots == ()
