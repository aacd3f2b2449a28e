"""A running engine: its address, its counters, its end."""

import http.client
import json
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from advisor.errors import EngineFailed
from advisor.serving import EngineFacts
from advisor.states import FailureKind
from probes.vllm.command import HOST
from probes.vllm.failures import classify
from probes.vllm.metrics import EngineSnapshot, parse_metrics
from probes.vllm.processes import kill_engines, remove_shared_memory, shared_memory_below
from probes.vllm.server_info import SERVER_INFO

# An engine with requests that makes no step for so long counts as hung. One step may take a minute
# on a CPU, and the first of a shape is compiled.
HANG_S = 300.0
_HTTP_TIMEOUT_S = 30.0
_HEALTH_TIMEOUT_S = 2.0
# The engine runs a dozen programs to describe its system before it answers.
_INFO_TIMEOUT_S = 60.0
# Beyond the grace time the guardian needs up to 10 s to kill and to verify.
_STOP_MARGIN_S = 15.0
_RESET_LIMIT_S = 10.0
_RESET_POLL_S = 0.1
_OK = 200


@dataclass(kw_only=True)
class RunningEngine:
    """A started engine under its guardian; as a context manager it is stopped at the end.

    `pid` is the guardian's: with `pid_started_at` (seconds since the epoch) it names the process.
    `hang_s` is how long it may stand still with requests (`probes/vllm/watchdog.py`).
    """

    process: subprocess.Popen[bytes]
    port: int
    token: str
    served_model_name: str
    log_path: Path
    pid_started_at: float
    stop_grace_s: float
    hang_s: float = HANG_S
    facts: EngineFacts = field(default_factory=EngineFacts)
    host: str = HOST
    segments: set[Path] = field(default_factory=set)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """Process id of the guardian."""
        return self.process.pid

    @property
    def base_url(self) -> str:
        """Where it serves."""
        return f"http://{self.host}:{self.port}"

    @property
    def exit_code(self) -> int | None:
        """Its exit code (128 + n for signal n); None while it runs."""
        return self.process.poll()

    @property
    def alive(self) -> bool:
        """Whether its process still runs."""
        return self.exit_code is None

    def check_alive(self) -> None:
        """Raise `EngineFailed` with what its log says, if it died after it was ready."""
        exit_code = self.exit_code
        if exit_code is not None:
            failure = classify(self.read_log(), exit_code=exit_code, served=True)
            died = failure.kind is FailureKind.EXITED
            raise failure.error(FailureKind.DIED if died else None)

    def healthy(self, timeout_s: float = _HEALTH_TIMEOUT_S) -> bool:
        """Whether ``/health`` answers 200 within the limit."""
        try:
            return self._exchange("GET", "/health", timeout_s)[0] == _OK
        except (OSError, http.client.HTTPException):
            return False

    def model_names(self) -> tuple[str, ...]:
        """Ids that ``/v1/models`` lists; empty for a server that is no OpenAI server."""
        _, body = self._ask("GET", "/v1/models")
        try:
            return tuple(str(model["id"]) for model in json.loads(body)["data"])
        except (ValueError, KeyError, TypeError):
            return ()

    def snapshot(self) -> EngineSnapshot:
        """Its counters now; `UnusableCounters` if they are not vLLM's."""
        return parse_metrics(self._ask("GET", "/metrics")[1].decode())

    def snapshot_or_none(self, timeout_s: float) -> EngineSnapshot | None:
        """Its counters, None where they do not answer in time; `UnusableCounters` as above."""
        try:
            return parse_metrics(self._exchange("GET", "/metrics", timeout_s)[1].decode())
        except (OSError, http.client.HTTPException):
            return None

    def server_info(self) -> Mapping[str, object]:
        """The configuration that it resolved (development mode); empty where it does not say."""
        try:
            status, body = self._exchange("GET", SERVER_INFO, _INFO_TIMEOUT_S)
            held = json.loads(body) if status == _OK else {}
        except (OSError, http.client.HTTPException, ValueError):
            return {}
        return held if isinstance(held, dict) else {}

    def reset_prefix_cache(self) -> None:
        """Empty the prefix cache (needs the development mode).

        The engine says no while blocks are held, which they are for a moment after a request's
        last token: asked again until it is done or `EngineFailed`.
        """
        limit_s = time.monotonic() + _RESET_LIMIT_S
        while True:
            status, body = self._ask("POST", "/reset_prefix_cache")
            if status == _OK and b"false" not in body:
                return
            if status != _OK or time.monotonic() > limit_s:
                raise EngineFailed(
                    FailureKind.LOAD_FAILED, f"the prefix cache was not reset: HTTP {status}"
                )
            time.sleep(_RESET_POLL_S)

    def note_shared_memory(self) -> None:
        """Remember its segments: once its processes are killed nobody could name them.

        A start makes them one by one, and may be killed at any moment: asked at every look.
        """
        self.segments |= shared_memory_below(self.pid)

    def read_log(self) -> str:
        """Everything it wrote so far."""
        return self.log_path.read_text(errors="replace")

    def stop(self) -> None:
        """End it: SIGTERM, after the grace time SIGKILL to the group, then verify by token.

        Raises `EngineFailed` (`DEVICE_HELD`) naming a process that survives; a free port would be
        no proof. Its shared memory is given back. Calling it again does no harm.
        """
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(self.stop_grace_s + _STOP_MARGIN_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        kill_engines({self.token})
        remove_shared_memory(self.segments)

    def _ask(self, method: str, path: str) -> tuple[int, bytes]:
        try:
            return self._exchange(method, path, _HTTP_TIMEOUT_S)
        except (OSError, http.client.HTTPException) as error:
            self.check_alive()
            raise EngineFailed(
                FailureKind.DIED, f"{path} does not answer: {type(error).__name__}"
            ) from error

    def _exchange(self, method: str, path: str, timeout_s: float) -> tuple[int, bytes]:
        """Status and body; straight to the port, whatever proxy the environment names."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout_s)
        try:
            connection.request(method, path)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()
