"""Starts vLLM's OpenAI-compatible server: `python serve.py <arguments of vllm serve>`.

vLLM starts its core and its worker by `spawn`, which imports the main module again in each of
them. Started by `-m`, that is the whole API server; this file imports nothing until it is run, and
each child process starts some seconds sooner. vLLM's own console script does not work where the
distribution is not called `vllm` (the CPU build: "No package metadata was found for vllm").
"""

import importlib.util
import runpy

ENTRY = "vllm.entrypoints.launchers.api_server.entry"
OLDER_ENTRY = "vllm.entrypoints.openai.api_server"


def main() -> None:
    """Serve with the arguments of the command line, by the entry that this version has."""
    try:
        known = importlib.util.find_spec(ENTRY) is not None
    except ModuleNotFoundError:
        known = False
    if known:
        from vllm.entrypoints.launchers.api_server.entry import main as serve

        serve()
    else:
        runpy.run_module(OLDER_ENTRY, run_name="__main__")


if __name__ == "__main__":
    main()
