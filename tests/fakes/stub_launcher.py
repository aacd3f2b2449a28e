"""Starts the cases' stub engine from vLLM's command line: ``serve <argv>``, as a launcher file.

ROOFTUNE_STUB names the stub, then its mode and options: ``stub_engine.py rolefirst --delay 2``.
"""

import argparse
import os
import shlex
import sys


def main() -> None:
    """Become the stub engine."""
    parser = argparse.ArgumentParser()
    parser.add_argument("command")
    parser.add_argument("--port", required=True)
    parser.add_argument("--served-model-name", required=True)
    served, _ = parser.parse_known_args()
    script, mode, *options = shlex.split(os.environ["ROOFTUNE_STUB"])  # noqa: TID251 - own process
    name = ["--model", served.served_model_name] if "--model" not in options else []
    os.execv(sys.executable, [sys.executable, script, served.port, mode, *name, *options])  # noqa: S606


if __name__ == "__main__":
    main()
