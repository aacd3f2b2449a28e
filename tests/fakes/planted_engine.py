"""A stand-in for vLLM with planted effects, as a launcher: ``flags | microbench | serve <argv>``.

It speaks vLLM's HTTP and metrics and writes vLLM's log lines, around a real step loop whose truth
is the JSON file named by ROOFTUNE_PLANTED. Standard library only: any interpreter runs it.
"""

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# Run as a file by an interpreter that does not know the repository.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.fakes.planted_core import Output, PlantedCore
from tests.fakes.planted_http import Refused, Reply, Server
from tests.fakes.planted_text import (
    VERSION,
    chunk,
    device_document,
    flags_document,
    metrics_text,
    prompt_of,
    startup_lines,
    usage,
)
from tests.fakes.planted_truth import Truth, likely_ids, read_truth, settings

TRUTH_VARIABLE = "ROOFTUNE_PLANTED"
TIMER_S = 0.003  # by how much a timer may be late on a machine with other work


class PlantedEngine:
    """The HTTP side of a `PlantedCore`."""

    def __init__(self, core: PlantedCore, served: argparse.Namespace, *, dev_mode: bool) -> None:
        self._core = core
        self._served = served
        self._dev_mode = dev_mode
        self._queues: dict[str, asyncio.Queue[Output]] = {}
        self._wake = asyncio.Event()
        self._count = 0
        self._door = asyncio.Semaphore(core.truth.client_limit or sys.maxsize)
        self._prompts: set[tuple[int, ...]] = set()

    async def step_forever(self) -> None:
        """The engine loop: a step takes its planted time, then its tokens go out.

        While it is busy a step begins when the last one was to end: what a timer is late by does
        not add up. A longer pause is lost, as it is on an engine that computes.
        """
        while True:
            due_s = 0.0
            while self._core.idle:
                self._wake.clear()
                await self._wake.wait()
                due_s = time.monotonic()
            while not self._core.idle:
                duration_s, outputs = self._core.step()
                due_s = max(due_s, time.monotonic() - TIMER_S) + duration_s
                await asyncio.sleep(max(0.0, due_s - time.monotonic()))
                self._hand_out(outputs)

    def _hand_out(self, outputs: list[Output]) -> None:
        for output in outputs:
            if output.key in self._queues:
                self._queues[output.key].put_nowait(output)
        self._die_if_planted()

    async def answer(self, method: str, path: str, body: bytes, reply: Reply) -> None:
        """One HTTP request."""
        match method, path.partition("?")[0]:
            case "GET", "/health":
                await reply.whole(200, b"", "text/plain")
            case "GET", "/version":
                await reply.json(200, {"version": VERSION})
            case "GET", "/v1/models":
                model = {"id": self._served.served_model_name, "object": "model"}
                await reply.json(200, {"object": "list", "data": [model]})
            case "GET", "/metrics":
                text = metrics_text(self._core, self._served.served_model_name)
                await reply.whole(200, text.encode(), "text/plain; version=0.0.4")
            case "POST", "/reset_prefix_cache" if self._dev_mode:
                await reply.json(200, {"success": self._core.pool.forget()})
            case "POST", "/v1/chat/completions" | "/v1/completions":
                await self._complete(path, json.loads(body), reply)
            case _:
                await reply.json(404, {"error": {"message": "no such route", "code": 404}})

    async def _complete(self, path: str, body: Mapping[str, Any], reply: Reply) -> None:
        if body.get("model") != self._served.served_model_name:
            raise Refused(404, "NotFoundError", "the model does not exist")
        prompt, text = prompt_of(body, self._core.truth.vocab_size)
        room = self._core.settings.max_model_len - len(prompt)
        limit = int(body.get("max_completion_tokens") or body.get("max_tokens") or room)
        if limit > room or not prompt:
            raise Refused(400, "BadRequestError", "the request does not fit the model's length")
        if not body.get("prompt_logprobs"):
            self._prompts.add(prompt)
        self._count += 1
        key = f"cmpl-{self._count}"
        chat = path.endswith("/chat/completions")
        async with self._door:
            queue = self._queues[key] = asyncio.Queue()
            self._core.submit(
                key,
                prompt,
                text,
                limit=limit,
                ignore_eos=bool(body.get("ignore_eos")),
                salt=body.get("cache_salt"),
            )
            self._wake.set()
            try:
                await self._stream(key, queue, (chat, prompt, body), reply)
            finally:
                self._core.cancel(key)
                del self._queues[key]

    def _logprobs(self, ids: tuple[int, ...]) -> list[dict[int, Any] | None]:
        """vLLM's ``prompt_logprobs``: the token that stands there, and the most likely one.

        What follows a prompt that was answered before is taken for an answer to it; of all other
        positions the token that stands there is the most likely one.
        """
        start = max(
            (len(known) for known in self._prompts if ids[: len(known)] == known), default=0
        )
        core = self._core
        likely = likely_ids(core.truth, core.settings.arithmetic, ids[:start], ids[start:])
        found: list[dict[int, Any] | None] = []
        for token, first in zip(ids, (*ids[:start], *likely), strict=True):
            second = {token: {"logprob": -2.0, "rank": 2, "decoded_token": f" w{token}"}}
            top = {first: {"logprob": -0.5, "rank": 1, "decoded_token": f" w{first}"}}
            found.append(second | top)
        return [None, *found[1:]]

    async def _stream(
        self,
        key: str,
        queue: "asyncio.Queue[Output]",
        asked: tuple[bool, tuple[int, ...], Mapping[str, Any]],
        reply: Reply,
    ) -> None:
        chat, prompt, body = asked
        ids = bool(body.get("return_token_ids"))
        streaming = bool(body.get("stream"))
        name = self._served.served_model_name
        produced: list[int] = []
        cached = 0
        finish = None
        while finish is None:
            output = await queue.get()
            finish = output.finish
            if streaming and not produced:
                await reply.begin_events()
                if chat:
                    await reply.event(chunk(key, name, {"role": "assistant", "content": ""}))
            cached = output.cached_tokens
            produced += output.token_ids
            if streaming:
                await reply.event(
                    chunk(key, name, output.token_ids, chat=chat, ids=ids, finish=finish)
                )
        details = self._served.enable_prompt_tokens_details
        counts = usage(len(prompt), len(produced), cached if details else None)
        if not streaming:
            final = chunk(key, name, tuple(produced), chat=chat, ids=ids, finish=finish, whole=True)
            place = final if chat else final["choices"][0]
            place["prompt_token_ids"] = list(prompt) if ids else None
            place["prompt_logprobs"] = (
                self._logprobs(prompt) if body.get("prompt_logprobs") else None
            )
            await reply.json(200, {**final, "usage": counts})
            return
        if (body.get("stream_options") or {}).get("include_usage"):
            await reply.event({**chunk(key, name, {}), "choices": [], "usage": counts})
        await reply.end_events()

    def _die_if_planted(self) -> None:
        limit = self._core.truth.die_after_requests
        if limit is not None and self._core.counters.finished >= limit:
            _say("(EngineCore pid=1) ERROR EngineCore encountered a fatal error.")
            os._exit(1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="planted_engine")
    parser.add_argument("--model", required=True)
    parser.add_argument("--served-model-name", required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    for name in ("max-model-len", "max-num-seqs", "max-num-batched-tokens", "block-size"):
        parser.add_argument(f"--{name}", type=int)
    parser.add_argument("--enable-prefix-caching", action=argparse.BooleanOptionalAction)
    parser.add_argument("--dtype")
    parser.add_argument("--quantization")
    parser.add_argument("--speculative-config", type=json.loads)
    parser.add_argument("--chat-template")
    parser.add_argument("--tool-call-parser")
    parser.add_argument("--reasoning-parser")
    for name in ("enforce-eager", "enable-auto-tool-choice", "enable-prompt-tokens-details"):
        parser.add_argument(f"--{name}", action="store_true")
    return parser


def _parsed(arguments: list[str]) -> argparse.Namespace:
    return _parser().parse_args(arguments)


def flags() -> dict[str, bool]:
    """The flags that it takes, and whether each is boolean."""
    actions = [action for action in _parser()._actions if action.dest != "help"]
    return {action.option_strings[0].removeprefix("--"): action.nargs == 0 for action in actions}


def _say(*lines: str) -> None:
    sys.stdout.write("".join(line + "\n" for line in lines))
    sys.stdout.flush()


def _fail_if_planted(truth: Truth, served: argparse.Namespace) -> None:
    chosen = {name: str(value) for name, value in vars(served).items() if value is not None}
    for failure in truth.failures:
        if all(
            name in chosen and value in {"*", chosen[name]} for name, value in failure.when.items()
        ):
            _say(*failure.log)
            sys.exit(failure.exit_code)


async def _serve(core: PlantedCore, served: argparse.Namespace, *, dev_mode: bool) -> None:
    engine = PlantedEngine(core, served, dev_mode=dev_mode)
    server = await asyncio.start_server(Server(engine.answer).handle, served.host, served.port)
    loop = asyncio.get_running_loop()
    steps = loop.create_task(engine.step_forever())
    loop.add_signal_handler(signal.SIGTERM, steps.cancel)
    _say("INFO:     Application startup complete.")
    try:
        await steps
    except asyncio.CancelledError:
        server.close()


def _truth(environment: Mapping[str, str]) -> Truth:
    path = environment.get(TRUTH_VARIABLE)
    return read_truth(json.loads(Path(path).read_text())) if path else Truth()


def _quantized(model: str) -> bool:
    """Whether a model folder holds a quantized checkpoint."""
    config = Path(model) / "config.json"
    return config.is_file() and "quantization_config" in json.loads(config.read_text())


def _run(arguments: list[str], environment: Mapping[str, str]) -> int:
    served = _parsed(arguments)
    truth = _truth(environment)
    chosen = settings(truth, {**vars(served), "quantization": _quantized(served.model)})
    before, after = startup_lines(truth, chosen, served.model)
    _say(*before)
    if truth.core_process:
        # As vLLM's core: a process of its own that SIGKILL of the front end leaves alive.
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    time.sleep(truth.start_s)
    _fail_if_planted(truth, served)
    _say(*after)
    dev_mode = environment.get("VLLM_SERVER_DEV_MODE") == "1"
    asyncio.run(_serve(PlantedCore(truth, chosen), served, dev_mode=dev_mode))
    return 0


def main(arguments: list[str], environment: Mapping[str, str]) -> int:
    """Dispatch the launcher's protocol."""
    command, *rest = arguments
    if command == "flags":
        _say(json.dumps(flags_document(flags())))
        return 0
    if command == "microbench":
        parser = argparse.ArgumentParser()
        parser.add_argument("--threads", type=int, required=True)
        parser.add_argument("--seconds", type=float, required=True)
        threads = parser.parse_args(rest).threads
        _say(json.dumps(device_document(_truth(environment), threads)))
        return 0
    return _run(rest, environment)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))  # noqa: TID251 - its own process, no settings module
