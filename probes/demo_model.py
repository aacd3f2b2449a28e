"""The demo model: built once from its wheel by the engine's interpreter, then only found."""

from collections.abc import Callable, Mapping
from pathlib import Path

from probes.engines import SCRIPTS, Interpreter, run_script

BUILD_TIMEOUT_S = 900.0


def demo_model(
    interpreter: Interpreter,
    folder: Path,
    *,
    env: Mapping[str, str],
    stopped: Callable[[], bool],
    progress: Callable[[str], None],
) -> Path:
    """The folder of the demo model. The script renames it into place, so a folder is a whole one.

    `progress` gets one phrase before a build starts and one after it ended.
    """
    if not folder.is_dir():
        progress("building the demo model from its wheel")
        folder.parent.mkdir(parents=True, exist_ok=True)
        argv = [str(interpreter.python), str(SCRIPTS / "demo_model.py"), "--out", str(folder)]
        built = run_script(argv, env=env, timeout_s=BUILD_TIMEOUT_S, stopped=stopped)
        progress(f"built the demo model, {built['parameters']} parameters")
    return folder
