"""Starts vLLM's OpenAI-compatible server: `python serve.py <arguments of vllm serve>`.

vLLM starts its core and its worker by `spawn`: each imports the main module and then all of vLLM
again, one after the other, which on a small processor is most of a start. Two things shorten it.
This file imports nothing until it is run. And the core is forked from a server process that
imported vLLM while the front end did the same; it gets the front end's environment as of its start,
as a spawned one would. The worker is spawned as ever: its OpenMP settings must be there before any
library is loaded. vLLM's own console script does not work where the distribution is not called
`vllm` (the CPU build: "No package metadata was found for vllm").
"""

import importlib.metadata
import importlib.util
import multiprocessing
import multiprocessing.context
import os
import runpy
from multiprocessing import forkserver
from typing import Any, NamedTuple

from typing_extensions import override

ENTRY = "vllm.entrypoints.launchers.api_server.entry"
OLDER_ENTRY = "vllm.entrypoints.openai.api_server"
CORE_NAME = "EngineCore"
CORE_MODULE = "vllm.v1.engine.core"


class ForkedCore(multiprocessing.context.ForkServerProcess):
    """A process forked from the prepared server, under the environment of who started it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.environment = dict(os.environ)  # noqa: TID251 - handed on whole, not read

    @override
    def run(self) -> None:
        """Call the target, under that environment."""
        os.environ.clear()  # noqa: TID251
        os.environ.update(self.environment)  # noqa: TID251
        super().run()


def process(*args: Any, **kwargs: Any) -> Any:
    """Prepare a process: the engine's core is forked, everything else spawned."""
    core = str(kwargs.get("name")).startswith(CORE_NAME)
    made = ForkedCore if core else multiprocessing.context.SpawnProcess
    return made(*args, **kwargs)


def fork_the_core() -> None:
    """Let ``get_context("spawn")`` fork the core; the server that it is forked from starts now."""
    original, context = multiprocessing.get_context, multiprocessing.context.SpawnContext()
    context.Process = process  # type: ignore[assignment,misc]

    def get_context(method: str | None = None) -> Any:
        return context if method == "spawn" else original(method)

    multiprocessing.get_context = get_context
    forkserver.set_forkserver_preload([CORE_MODULE])
    forkserver.ensure_running()


class SystemReport(NamedTuple):
    """What is told of the system: no program has to be run for it."""

    torch_version: str


def shorten_the_system_report() -> None:
    """Let ``GET /server_info`` answer at once: vLLM's own report starts a dozen programs."""
    from vllm import collect_env

    def told() -> SystemReport:
        return SystemReport(torch_version=importlib.metadata.version("torch"))

    collect_env.get_env_info = told


def main() -> None:
    """Serve with the arguments of the command line, by the entry that this version has."""
    fork_the_core()
    shorten_the_system_report()
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
