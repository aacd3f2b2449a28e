"""Quantized checkpoints: made once, never half, never from other files than the inspected ones."""

import fcntl
import json
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from advisor.canonical import digest
from advisor.errors import EngineFailed, InvalidInput
from advisor.serving import WeightQuantization
from advisor.states import FailureKind
from db.tables import TargetRow
from probes.quantizer import (
    MANIFEST,
    SEQUENCE_TOKENS,
    SEQUENCES,
    Checkpoint,
    Order,
    Quantizer,
    checkpoint_for,
)
from probes.targets import model_digest
from probes.workplace import Workplace
from tests.fakes import stub_quantizer
from tests.fakes.stub_quantizer import MOOD_VARIABLE

PATH = {"PATH": "/usr/bin:/bin"}
SLOW = {**PATH, MOOD_VARIABLE: "slow"}
FAIL = {**PATH, MOOD_VARIABLE: "fail"}
MODEL_FILES = ("config.json", "model.safetensors")


@dataclass
class Heard:
    """The phases that a caller was told, and who may end the work."""

    phases: list[str] = field(default_factory=list)
    cancelled: threading.Event = field(default_factory=threading.Event)

    def __call__(self, phase: str, _elapsed_s: float | None) -> None:
        self.phases.append(phase)


@dataclass(frozen=True)
class Bench:
    """A model, an installed stub and a folder for its products."""

    order: Order
    quantizer: Quantizer

    def make(self, order: Order | None = None, **changes: object) -> Checkpoint:
        heard = Heard()
        quantizer = replace(self.quantizer, **changes)  # type: ignore[arg-type]
        return quantizer.checkpoint(
            order or self.order, cancelled=heard.cancelled, on_progress=heard
        )

    @property
    def calls(self) -> list[dict[str, str]]:
        return stub_quantizer.calls(self.quantizer.python)

    def products(self) -> list[str]:
        """Everything in the folder of checkpoints except the empty lock files."""
        found = sorted(self.quantizer.folder.rglob("*"))
        return [file.name for file in found if file.suffix != ".lock"]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    (model / "model.safetensors").write_bytes(b"weights")
    order = Order(
        model=model,
        model_digest=model_digest(model),
        quantization=WeightQuantization(),
        workload_digest="a workload",
        calibration=((1, 2, 3), (4, 5)),
        seed=7,
    )
    quantizer = Quantizer(
        python=stub_quantizer.install(tmp_path / "venv"),
        folder=tmp_path / "checkpoints",
        env=PATH,
        threads=1,
    )
    return Bench(order=order, quantizer=quantizer)


def manifest(made: Checkpoint) -> Mapping[str, object]:
    held: dict[str, object] = json.loads((made.path.parent / MANIFEST).read_text())
    return held


def test_a_checkpoint_is_made_once_and_then_found(bench: Bench) -> None:
    """The second call runs nothing and names the same files."""
    first, second = bench.make(), bench.make()

    assert first == second
    assert first.digest == model_digest(first.path)
    assert len(bench.calls) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"model_digest": "another model"},
        {"quantization": WeightQuantization(algorithm="rtn")},
        {"workload_digest": "another workload"},
        {"calibration": ((1, 2, 3), (4, 6))},
        {"seed": 8},
    ],
)
def test_whatever_decides_the_weights_is_in_the_key(
    bench: Bench, changes: dict[str, object]
) -> None:
    """Nothing is served for another model, workload, seed or algorithm than it was made for."""
    other = replace(bench.order, **changes)  # type: ignore[arg-type]

    assert digest(other.described()) != digest(bench.order.described())


def test_another_version_of_the_quantizer_makes_its_own_checkpoint(bench: Bench) -> None:
    """Its arithmetic may differ."""
    first = bench.make()
    stub_quantizer.install(bench.quantizer.python.parent.parent, version="0.15.0")

    assert bench.make().path != first.path


def test_rounding_to_nearest_is_shared_by_all_workloads(bench: Bench) -> None:
    """No text goes into it, so that no purge has to find it."""
    order = replace(
        bench.order,
        quantization=WeightQuantization(algorithm="rtn"),
        workload_digest=None,
        calibration=(),
    )
    made = bench.make(order)

    assert bench.make(replace(order, seed=99)) == made
    assert manifest(made)["workload_digest"] is None


def test_the_manifest_names_workload_and_weights(bench: Bench) -> None:
    """A purge of the workload finds what was derived from it."""
    made = bench.make()
    held = manifest(made)

    assert held["workload_digest"] == "a workload"
    assert held["digest"] == made.digest
    assert held["quantizer"] == "llmcompressor 0.14.0.1"


def test_calibration_text_is_private_and_gone_afterwards(bench: Bench) -> None:
    """Token ids are the users' words: one list per line, for this user only, for a moment."""
    made = bench.make()
    (call,) = bench.calls

    assert call["mode"] == "0o600"
    assert call["flags"] == "--consume"
    assert [json.loads(line) for line in call["tokens"].splitlines()] == [[1, 2, 3], [4, 5]]
    assert set(bench.products()) == {made.path.parent.name, MANIFEST, "model", *MODEL_FILES}


def test_a_failed_quantization_leaves_nothing_and_says_what_was_printed(bench: Bench) -> None:
    """The kind is its own, the progress bars are not part of the reason."""
    with pytest.raises(EngineFailed, match="a layer nobody knows") as failure:
        bench.make(env=FAIL)

    assert failure.value.kind == FailureKind.QUANTIZATION_FAILED
    assert "it/s]" not in failure.value.detail
    assert bench.products() == []


def test_a_cancelled_quantization_ends_at_once_and_leaves_nothing(bench: Bench) -> None:
    """Within seconds, although the stub would sleep for a minute."""
    heard = Heard()
    timer = threading.Timer(0.3, heard.cancelled.set)
    timer.start()
    began_s = time.monotonic()
    with pytest.raises(EngineFailed) as failure:
        replace(bench.quantizer, env=SLOW).checkpoint(
            bench.order, cancelled=heard.cancelled, on_progress=heard
        )
    timer.join()

    assert failure.value.kind == FailureKind.CANCELLED
    assert time.monotonic() - began_s < 30
    assert heard.phases[0] == "quantizing weights (gptq W8A8)"
    assert bench.products() == []


def test_two_at_once_make_one_checkpoint(bench: Bench) -> None:
    """The second waits for the first and finds what it made."""
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: bench.make(), range(2))

    assert first == second
    assert len(bench.calls) == 1


def test_waiting_for_another_process_can_be_cancelled(bench: Bench) -> None:
    """It says for what it waits."""
    made = bench.make()
    heard = Heard()
    heard.cancelled.set()
    with made.path.parent.with_suffix(".lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(EngineFailed) as failure:
            bench.quantizer.checkpoint(bench.order, cancelled=heard.cancelled, on_progress=heard)

    assert failure.value.kind == FailureKind.CANCELLED
    assert heard.phases == ["waiting for another process to quantize these weights"]


@pytest.mark.parametrize("damaged", ["model/model.safetensors", MANIFEST])
def test_a_damaged_checkpoint_is_made_again(bench: Bench, damaged: str) -> None:
    """Weights that are not those of the manifest are never served."""
    first = bench.make()
    (first.path.parent / damaged).write_text("cut off")

    assert bench.make() == first
    assert len(bench.calls) == 2


def test_what_a_killed_process_left_is_not_taken_for_a_checkpoint(bench: Bench) -> None:
    """A manifest without a digest is one of weights that were not finished."""
    made = bench.make()
    unfinished = {**manifest(made), "digest": None}
    (made.path.parent / MANIFEST).write_text(json.dumps(unfinished))
    (made.path.parent / "model.partial-1").mkdir()

    assert bench.make() == made
    assert "model.partial-1" not in bench.products()


def test_a_model_that_changed_since_its_inspection_is_refused(bench: Bench) -> None:
    """The key names the digest that was inspected."""
    (bench.order.model / "model.safetensors").write_bytes(b"other weights")

    with pytest.raises(InvalidInput, match="inspected"):
        bench.make()
    assert bench.products() == []


def test_a_missing_quantizer_is_named_with_its_remedy(bench: Bench, tmp_path: Path) -> None:
    """Neither an absent interpreter nor one without llm-compressor is started."""
    empty = tmp_path / "empty" / "bin" / "python"
    empty.parent.mkdir(parents=True)
    empty.touch()

    for python in (tmp_path / "absent" / "bin" / "python", empty):
        with pytest.raises(EngineFailed, match="make quantizer") as failure:
            bench.make(python=python)
        assert failure.value.kind == FailureKind.QUANTIZER_MISSING


def place_of(bench: Bench, tmp_path: Path) -> Workplace:
    """As much of a workplace as the quantizer looks at."""
    settings = SimpleNamespace(
        quantizer_python=bench.quantizer.python, data_dir=tmp_path, demo_model=tmp_path / "demo"
    )
    return cast("Workplace", SimpleNamespace(settings=settings, base_env=PATH))


def ask(
    bench: Bench, tmp_path: Path, algorithm: str, calibration: list[tuple[int, ...]]
) -> Checkpoint:
    target = SimpleNamespace(
        model="local", model_path=bench.order.model, model_digest=bench.order.model_digest
    )
    heard = Heard()
    return checkpoint_for(
        place_of(bench, tmp_path),
        target=cast("TargetRow", target),
        quantization=WeightQuantization(algorithm=algorithm),
        workload_digest="a workload",
        calibration=calibration,
        seed=7,
        cancelled=heard.cancelled,
        on_progress=heard,
    )


def test_only_the_first_sequences_are_used_and_each_is_cut(bench: Bench, tmp_path: Path) -> None:
    """Calibration costs about as much as a load point, however long the workload is."""
    long = tuple(range(SEQUENCE_TOKENS + 50))
    made = ask(bench, tmp_path, "gptq", [long] * (SEQUENCES + 5))
    held = manifest(made)

    assert held["calibration_sequences"] == SEQUENCES
    assert held["calibration_tokens"] == SEQUENCES * SEQUENCE_TOKENS


def test_gptq_without_text_is_refused_and_rounding_is_not(bench: Bench, tmp_path: Path) -> None:
    """Rounding to nearest needs no data."""
    with pytest.raises(InvalidInput, match="no text"):
        ask(bench, tmp_path, "gptq", [])
    made = ask(bench, tmp_path, "rtn", [])

    assert manifest(made)["algorithm"] == "rtn"
    assert "--calibration" not in bench.calls[0]
