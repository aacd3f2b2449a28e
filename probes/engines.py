"""The installed engine of this agent: its scripts, and the row that names version and flags."""

import json
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advisor.errors import Unavailable
from db import guardian

SCRIPTS = Path(__file__).resolve().parent / "scripts"
FLAGS_TIMEOUT_S = 300.0
FLAGS_RECORD = "rooftune-flags.json"
POLL_S = 0.1
TAIL_CHARACTERS = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """The engine's Python; a `launcher` file stands in for vLLM's scripts and server."""

    python: Path
    launcher: Path | None = None

    def script(self, name: str, *arguments: str) -> list[str]:
        """Argv of one of the scripts (flags, microbench, demo_model)."""
        if self.launcher is not None:
            return [str(self.python), str(self.launcher), name, *arguments]
        return [str(self.python), str(SCRIPTS / f"{name}.py"), *arguments]

    def recorded_flags(self) -> dict[str, Any] | None:
        """The dump that `make setup` left in the engine's environment, None if it may be stale.

        It counts while nothing was installed and the script was not changed since: importing vLLM
        to ask again takes a quarter of a minute.
        """
        home = self.python.absolute().parent.parent
        record = home / FLAGS_RECORD
        installed = list(home.glob("lib/python3.*/site-packages"))
        if self.launcher is not None or not record.is_file() or not installed:
            return None
        sources = [*installed, SCRIPTS / "flags.py", SCRIPTS / "serve.py"]
        if max(path.stat().st_mtime for path in sources) > record.stat().st_mtime:
            return None
        try:
            held = _last_object(FLAGS_RECORD, record.read_text(encoding="utf-8"))
        except (OSError, Unavailable):
            return None
        script = str(held.get("serve_module", [""])[0])
        return held if not script.endswith(".py") or Path(script).exists() else None

    def flags(
        self, *, env: Mapping[str, str], timeout_s: float, stopped: Callable[[], bool]
    ) -> dict[str, Any]:
        """What its own parser says it accepts: the record where that counts, else asked anew.

        Raises what `run_script` raises.
        """
        return self.recorded_flags() or run_script(
            self.script("flags"), env=env, timeout_s=timeout_s, stopped=stopped
        )


def run_script(
    argv: list[str],
    *,
    env: Mapping[str, str],
    timeout_s: float,
    stopped: Callable[[], bool],
) -> dict[str, Any]:
    """Run a script of the engine under a guardian and return the JSON object that it prints.

    Raises `Unavailable` when it cannot run, fails, takes too long, prints something else, or when
    `stopped` says that the agent is to end.
    """
    name = Path(argv[1]).stem
    try:
        process = subprocess.Popen(
            guardian.command(argv),
            env=dict(env),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    except OSError as error:
        raise Unavailable(
            f"{name} did not start: {error}", "check ROOFTUNE_ENGINE_PYTHON"
        ) from None
    with process:
        out, err = _communicated(process, name, time.monotonic() + timeout_s, stopped)
    if process.returncode != 0:
        remedy = f"it printed: {err.strip()[-TAIL_CHARACTERS:]}"
        raise Unavailable(f"{name} ended with {process.returncode}", remedy)
    return _last_object(name, out)


def _communicated(
    process: subprocess.Popen[str], name: str, deadline_s: float, stopped: Callable[[], bool]
) -> tuple[str, str]:
    while True:
        try:
            return process.communicate(timeout=POLL_S)
        except subprocess.TimeoutExpired:
            if stopped() or time.monotonic() > deadline_s:
                process.terminate()
                process.communicate()
                raise Unavailable(
                    f"{name} was ended before it finished", "start it again"
                ) from None


def _last_object(name: str, out: str) -> dict[str, Any]:
    lines = out.strip().splitlines()
    try:
        held = json.loads(lines[-1]) if lines else None
    except ValueError:
        held = None
    if not isinstance(held, dict):
        raise Unavailable(f"{name} printed no JSON object", "run it by hand to see what it prints")
    return held
