"""Quantized checkpoints of a target's model: made once per model, scheme and workload, then found.

Below the data folder, ``checkpoints/<key>/`` holds ``model`` (the checkpoint) and
``manifest.json``. With gptq the weights depend on the workload's texts: its manifest names that
workload, so that a purge of the workload finds it. The manifest is written before the weights are
made; its `digest` is filled in when they are whole.
"""

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

from advisor.canonical import digest
from advisor.errors import EngineFailed, InvalidInput, Unavailable
from advisor.serving import WeightQuantization
from advisor.states import FailureKind
from advisor.units import bytes_text
from db.tables import TargetRow
from probes.device import physical_cores
from probes.engines import SCRIPTS, run_script
from probes.targets import folder_here, model_digest, refuse_changed
from probes.workplace import Workplace, weight_file_bytes

Progress = Callable[[str, float | None], None]

PACKAGE = "llmcompressor"
MODEL = "model"
MANIFEST = "manifest.json"
CHECKPOINTS = "checkpoints"
# More tokens than a layer has inputs, or its Hessian says little; a pass over them costs about as
# much as one load point.
SEQUENCES = 32
SEQUENCE_TOKENS = 256
LIMIT_S = 3600.0
POLL_S = 0.2
TELL_EVERY_S = 1.0
SAID_LINES = 4
INSTALL = "run `make quantizer`, or name another one's Python in ROOFTUNE_QUANTIZER_PYTHON"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A whole quantized checkpoint; `digest` as `targets.model_digest` of its folder."""

    path: Path
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What to make. Without `calibration` (rtn) nothing of a workload goes into the weights."""

    model: Path
    model_digest: str
    quantization: WeightQuantization
    workload_digest: str | None
    calibration: tuple[tuple[int, ...], ...]
    seed: int

    def described(self) -> dict[str, Any]:
        """All that decides what the weights become, apart from the quantizer's version."""
        return {
            "model_digest": self.model_digest,
            "scheme": self.quantization.scheme,
            "algorithm": self.quantization.algorithm,
            "workload_digest": self.workload_digest,
            "calibration_digest": digest(self.calibration) if self.calibration else None,
            "calibration_sequences": len(self.calibration),
            "calibration_tokens": sum(map(len, self.calibration)),
            "seed": self.seed if self.calibration else None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantizer:
    """The installed quantizer and the folder of its products."""

    python: Path
    folder: Path
    env: Mapping[str, str]
    threads: int

    def version(self) -> str:
        """Version of llm-compressor in the environment; `QUANTIZER_MISSING` without one."""
        # Not resolved: the interpreter of a virtual environment is a link out of it.
        home = self.python.absolute().parent.parent
        found = sorted(home.glob(f"lib*/python3*/site-packages/{PACKAGE}-*.dist-info"))
        if not self.python.is_file() or not found:
            raise EngineFailed(
                FailureKind.QUANTIZER_MISSING,
                f"no llm-compressor is installed at {self.python}; {INSTALL}",
            )
        return found[-1].name.removeprefix(f"{PACKAGE}-").removesuffix(".dist-info")

    def checkpoint(self, order: Order, *, cancelled: Event, on_progress: Progress) -> Checkpoint:
        """The checkpoint of `order`, made if it is not there yet or not whole any more.

        Raises `EngineFailed`: `QUANTIZER_MISSING`, `QUANTIZATION_FAILED` or `CANCELLED`; then
        nothing of a checkpoint is left.
        """
        described = {"quantizer": f"{PACKAGE} {self.version()}", **order.described()}
        home = self.folder / digest(described)
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _alone(home.with_suffix(".lock"), cancelled, on_progress):
            held = _held(home, on_progress)
            if held is not None:
                return held
            return self._made(home, order, described, cancelled=cancelled, on_progress=on_progress)

    def _made(
        self,
        home: Path,
        order: Order,
        described: Mapping[str, Any],
        *,
        cancelled: Event,
        on_progress: Progress,
    ) -> Checkpoint:
        """Make the checkpoint in an empty `home`; the caller holds its lock."""
        shutil.rmtree(home, ignore_errors=True)  # what a killed process left there
        refuse_changed(order.model, order.model_digest)
        self._refuse_full_disk(order.model)
        home.mkdir(mode=0o700)
        whole = False
        try:
            _write(home / MANIFEST, {**described, "digest": None})
            result = self._run(home, order, cancelled=cancelled, on_progress=on_progress)
            made = Checkpoint(path=home / MODEL, digest=model_digest(home / MODEL))
            figures = {name: result.get(name) for name in ("seconds", "weight_bytes")}
            _write(home / MANIFEST, {**described, **figures, "digest": made.digest})
            whole = True
        finally:
            if not whole:
                shutil.rmtree(home, ignore_errors=True)
        return made

    def _refuse_full_disk(self, model: Path) -> None:
        needed, free = weight_file_bytes(model), shutil.disk_usage(self.folder).free
        if free < needed:
            raise EngineFailed(
                FailureKind.QUANTIZATION_FAILED,
                f"the data folder has {bytes_text(free)} free, a quantized checkpoint may take"
                f" {bytes_text(needed)}; free some, or move ROOFTUNE_DATA_DIR",
            )

    def _run(
        self, home: Path, order: Order, *, cancelled: Event, on_progress: Progress
    ) -> dict[str, Any]:
        """Run the script; the calibration file exists only until the script has read it."""
        quantization = order.quantization
        argv = [str(self.python), str(SCRIPTS / "quantize.py")]
        argv += ["--model", str(order.model), "--out", str(home / MODEL)]
        argv += ["--scheme", quantization.scheme, "--algorithm", quantization.algorithm]
        argv += ["--threads", str(self.threads), "--seed", str(order.seed)]
        calibration = home / f"calibration-{secrets.token_hex(8)}.jsonl"
        if order.calibration:
            _write_private(calibration, order.calibration)
            argv += ["--max-seq", str(SEQUENCE_TOKENS)]
            argv += ["--calibration", str(calibration), "--consume"]
        phase = f"quantizing weights ({quantization.algorithm} {quantization.scheme})"
        stopped = _reporting(cancelled, lambda elapsed_s: on_progress(phase, elapsed_s))
        # A library's own error report must not print the values (token ids) that it worked on.
        env = {**self.env, "HF_HUB_OFFLINE": "1", "LOGURU_DIAGNOSE": "NO"}
        try:
            result = run_script(argv, env=env, timeout_s=LIMIT_S, stopped=stopped)
        except Unavailable as error:
            if cancelled.is_set():
                raise _cancelled() from None
            raise EngineFailed(FailureKind.QUANTIZATION_FAILED, _said(error)) from None
        finally:
            calibration.unlink(missing_ok=True)
        if not (home / MODEL).is_dir():
            raise EngineFailed(FailureKind.QUANTIZATION_FAILED, "the quantizer wrote no checkpoint")
        return result


def checkpoint_for(
    place: Workplace,
    *,
    target: TargetRow,
    quantization: WeightQuantization,
    workload_digest: str,
    calibration: Sequence[tuple[int, ...]],
    seed: int,
    cancelled: Event,
    on_progress: Progress,
) -> Checkpoint:
    """The quantized checkpoint of a target, calibrated on a workload: found, or made now.

    Of `calibration` (token ids under the target's tokenizer) the first `SEQUENCES` are used, each
    cut to `SEQUENCE_TOKENS`; rounding to nearest needs none. `on_progress` gets a phase and the
    seconds that it lasts already. Raises `EngineFailed` (see `Quantizer.checkpoint`), or
    `InvalidInput` when the model's files changed.
    """
    needs_data = quantization.algorithm != "rtn"
    used = tuple(row[:SEQUENCE_TOKENS] for row in calibration[:SEQUENCES]) if needs_data else ()
    if needs_data and not used:
        raise InvalidInput("quantization", "the workload has no text to calibrate on")
    quantizer = Quantizer(
        python=place.settings.quantizer_python,
        folder=place.settings.data_dir.absolute() / CHECKPOINTS,
        env=place.base_env,
        threads=physical_cores(),
    )
    order = Order(
        model=folder_here(target, place.settings.demo_model),
        model_digest=str(target.model_digest),
        quantization=quantization,
        workload_digest=workload_digest if needs_data else None,
        calibration=used,
        seed=seed,
    )
    return quantizer.checkpoint(order, cancelled=cancelled, on_progress=on_progress)


@contextlib.contextmanager
def _alone(lock: Path, cancelled: Event, on_progress: Progress) -> Iterator[None]:
    """Hold the lock file; the kernel gives it back when a process ends, however it ends."""
    with lock.open("ab") as file:
        began_s = time.monotonic()
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                waited_s = time.monotonic() - began_s
                on_progress("waiting for another process to quantize these weights", waited_s)
                if cancelled.wait(POLL_S):
                    raise _cancelled() from None
        yield


def _held(home: Path, on_progress: Progress) -> Checkpoint | None:
    """The checkpoint in `home` if its files are those of its manifest."""
    try:
        wanted = json.loads((home / MANIFEST).read_text(encoding="utf-8"))["digest"]
    except (OSError, ValueError, TypeError, KeyError):
        return None
    if not isinstance(wanted, str) or not (home / MODEL).is_dir():
        return None
    on_progress("checking the quantized weights", None)
    if model_digest(home / MODEL) != wanted:
        return None
    return Checkpoint(path=home / MODEL, digest=wanted)


def _reporting(cancelled: Event, tell: Callable[[float], None]) -> Callable[[], bool]:
    """`cancelled.is_set`, which tells the elapsed seconds now and then when it is asked."""
    began_s = time.monotonic()
    told_s = [-TELL_EVERY_S]

    def stopped() -> bool:
        elapsed_s = time.monotonic() - began_s
        if elapsed_s - told_s[0] >= TELL_EVERY_S:
            told_s[0] = elapsed_s
            tell(elapsed_s)
        return cancelled.is_set()

    return stopped


def _write(file: Path, value: Mapping[str, Any]) -> None:
    """Replace `file` by the JSON of `value` in one step."""
    draft = file.with_name(f"{file.name}.new")
    draft.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    draft.replace(file)


def _write_private(file: Path, rows: Sequence[Sequence[int]]) -> None:
    """Token ids, one list per line, that only this user can read."""
    number = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(number, "w", encoding="utf-8") as stream:
        stream.writelines(f"{json.dumps(list(row))}\n" for row in rows)


def _said(error: Unavailable) -> str:
    """What failed and the end of what the quantizer printed, without its progress bars."""
    lines = [line.strip() for line in error.remedy.splitlines()]
    kept = [line for line in lines if line and "it/s]" not in line]
    return "\n".join((error.what, *kept[-SAID_LINES:]))


def _cancelled() -> EngineFailed:
    return EngineFailed(FailureKind.CANCELLED, "the quantization was cancelled")
