"""Starts an engine for one measurement, under the guardian, and stops it at the end."""

import secrets
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from advisor.errors import InvalidInput
from advisor.measurement.asked import OwnEngine
from probes.device_memory import memory_reader, refuse_held
from probes.engines import FLAGS_TIMEOUT_S, Interpreter
from probes.measure.own import OwnServer
from probes.settings import engine_environment
from probes.vllm.command import EngineSpec
from probes.vllm.flags import read_schema
from probes.vllm.server import StartPlan, StartProgress, start_engine
from probes.workplace import weight_file_bytes


@contextmanager
def own_server(
    asked: OwnEngine,
    *,
    cancelled: threading.Event,
    on_progress: Callable[[StartProgress], None],
) -> Iterator[OwnServer]:
    """The engine of `asked` while the block lasts; `EngineFailed` says why it did not start."""
    folder = Path(asked.model_folder)
    if asked.launcher is None and not (folder / "config.json").is_file():
        raise InvalidInput("--model-folder", "has no config.json")
    spec = _spec(asked, cancelled)
    token = f"rt-{secrets.token_hex(12)}"
    with tempfile.TemporaryDirectory(prefix="rooftune-measure-") as place:
        plan = StartPlan(
            engine=spec,
            config=asked.config,
            model_path=str(folder),
            model_bytes=weight_file_bytes(folder),
            served_model_name=token,
            token=token,
            log_path=Path(place) / "engine.log",
            base_env=engine_environment(),
        )
        refuse_held(
            # The engine takes the first device that it sees, as vLLM does.
            memory_reader(spec.schema.build, "0"),
            plan.config,
            non_kv_bytes=plan.model_bytes,
            cancelled=cancelled,
        )
        with start_engine(plan, on_progress=on_progress, cancelled=cancelled) as engine:
            yield OwnServer(engine=engine, build=spec.schema.build, environment=plan.base_env)


def _spec(asked: OwnEngine, cancelled: threading.Event) -> EngineSpec:
    launcher = None if asked.launcher is None else Path(asked.launcher)
    interpreter = Interpreter(python=Path(asked.python), launcher=launcher)
    if not interpreter.python.is_file():
        raise InvalidInput("--engine", "is no Python interpreter: name that of an engine")
    flags = interpreter.flags(
        env=engine_environment(), timeout_s=FLAGS_TIMEOUT_S, stopped=cancelled.is_set
    )
    return EngineSpec(interpreter=asked.python, launcher=asked.launcher, schema=read_schema(flags))
