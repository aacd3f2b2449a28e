"""Record what an installed vLLM writes: ``python -m tests.golden.engine.record``.

Give the engine's interpreter, the demo model's folder and the names of cases (none: all). The
server is started with the flags of the case; what it writes until it ends, or until a request was
answered and it was stopped, is kept under its version without what names this machine.
"""

import argparse
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

from probes.settings import engine_environment
from probes.vllm.flags import dump_command
from probes.vllm.server_info import SERVER_INFO

HERE = Path(__file__).parent
LIMIT_S = 300.0
POLL_S = 0.5
# Last starts, metrics included; then failures, by what they show.
STARTS: dict[str, tuple[str, ...]] = {
    "bf16": ("--max-model-len=2048", "--enforce-eager"),
    "fp32": ("--max-model-len=2048", "--enforce-eager", "--dtype=float32"),
    "compiled": ("--max-model-len=2048",),
    "ngram": (
        "--max-model-len=2048",
        "--enforce-eager",
        (
            '--speculative-config={"method":"ngram","num_speculative_tokens":4,'
            '"prompt_lookup_max":4,"prompt_lookup_min":2}'
        ),
    ),
}
FAILURES: dict[str, tuple[str, ...]] = {
    "awq-on-plain-weights": ("--quantization=awq",),
    "unknown-quantization": ("--quantization=nope",),
    "unchunked-below-model-length": (
        *("--no-enable-chunked-prefill", "--max-num-batched-tokens=512", "--max-model-len=2048"),
    ),
    "sequences-above-batched-tokens": ("--max-num-batched-tokens=8", "--max-num-seqs=16"),
    "unknown-draft-method": (
        '--speculative-config={"method":"nope","model":"MODEL","num_speculative_tokens":2}',
    ),
    "lookup-bounds-swapped": (
        (
            '--speculative-config={"method":"ngram","num_speculative_tokens":2,'
            '"prompt_lookup_max":2,"prompt_lookup_min":4}'
        ),
    ),
    "draft-vocabulary": (
        '--speculative-config={"method":"draft_model","model":"DRAFT","num_speculative_tokens":2}',
    ),
    "draft-ranks": (
        (
            '--speculative-config={"method":"draft_model","model":"MODEL",'
            '"num_speculative_tokens":2,"draft_tensor_parallel_size":2}'
        ),
    ),
    "heads-do-not-divide": ("--tensor-parallel-size=2",),
    "max-model-len-over-derived": ("--max-model-len=99999", "--enforce-eager"),
    "invalid-choice": ("--dtype=float33",),
    "kv-cache-too-small": (
        "--max-model-len=8192", "--enforce-eager", "--num-gpu-blocks-override=15",
    ),
    "port-in-use": ("--enforce-eager",),
    "unknown-model": ("--enforce-eager",),
}  # fmt: skip
# Of the resolved configuration: what is read, and what stands beside it.
INFO_SECTIONS = (
    *("scheduler_config", "cache_config", "compilation_config", "parallel_config"),
    *("kernel_config", "attention_config"),
)
INFO_SYSTEM = ("torch_version", "is_cuda_available", "cuda_runtime_version")
PROMPT = {"model": "demo", "prompt": "one two three one two three one two", "max_tokens": 24}


def scrubbed(text: str, model: str) -> str:
    """The text without paths, addresses and names of this machine."""
    for pattern, put in (
        (re.escape(model), "<model>"),
        (re.escape(socket.gethostname()), "<host>"),
        (r"/(?:[\w.+\-]+/)*site-packages/", "site-packages/"),
        (r"/(?:[\w.+\-]+/)*lib/(python3\.\d+/)", r"\1"),
        (r"(?:tcp|ipc|https?)://[^\s'\",)\]]+", "<url>"),
        (r"file:///[^\s'\",)\]]+", "<file>"),
        (r"\b(?!127\.0\.0\.1)\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}\b", "<address>"),
        (r"(?<![\w.}\-/<])/(?:work|root|tmp|home|opt|var)/[^\s'\",)\]:]+", "<path>"),
        (r"'[0-9a-f]{32,}'", "'<digest>'"),
    ):
        text = re.sub(pattern, put, text)
    return text


def command(python: Path, model: str, port: int, flags: tuple[str, ...]) -> list[str]:
    """The argv of one server."""
    serve = Path("probes/scripts/serve.py").absolute()
    fixed = (f"--model={model}", "--served-model-name=demo", "--host=127.0.0.1", f"--port={port}")
    return [str(python), str(serve), *fixed, *flags]


def started(argv: list[str], log: Path) -> subprocess.Popen[bytes]:
    """A server in a group of its own that writes to `log`."""
    env = {
        **engine_environment(),
        "VLLM_CPU_KVCACHE_SPACE": "2",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_DO_NOT_TRACK": "1",
        "VLLM_SERVER_DEV_MODE": "1",
    }
    with log.open("wb") as stream:
        return subprocess.Popen(
            argv, env=env, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True
        )


def answered(port: int, path: str, body: dict[str, Any] | None = None) -> str | None:
    """What the server answers; None while it does not."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", data, {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            return str(answer.read().decode())
    except (urllib.error.URLError, OSError):
        return None


def ended(process: subprocess.Popen[bytes]) -> None:
    """End the whole group."""
    process.send_signal(signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(30)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def answers(port: int) -> dict[str, str]:
    """Metrics after a request, and the resolved configuration, by the file that keeps them."""
    answered(port, "/v1/completions", PROMPT)
    info = json.loads(answered(port, SERVER_INFO) or "{}")
    config, system = info.get("vllm_config", {}), info.get("system_env", {})
    kept = {
        "vllm_config": {name: config.get(name) for name in INFO_SECTIONS},
        "system_env": {name: system.get(name) for name in INFO_SYSTEM},
    }
    return {
        "metrics.txt": answered(port, "/metrics") or "",
        "server-info.json": json.dumps(kept, indent=1) + "\n",
    }


def record(python: Path, model: str, name: str, *, kept: Path, draft: Path) -> dict[str, str]:
    """Start, and keep the log; other answers where the server starts."""
    flags = tuple(
        flag.replace("MODEL", model).replace("DRAFT", str(draft))
        for flag in {**FAILURES, **STARTS}[name]
    )
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = int(taken.getsockname()[1])
        if name == "port-in-use":
            taken.listen()
        else:
            taken.close()
        served = "<nowhere>/no-such-model" if name == "unknown-model" else model
        process = started(command(python, served, port, flags), kept)
        limit_s = time.monotonic() + LIMIT_S
        told: dict[str, str] = {}
        while process.poll() is None and time.monotonic() < limit_s:
            if name in STARTS and answered(port, "/health") is not None:
                told = answers(port)
                break
            time.sleep(POLL_S)
        ended(process)
    return told


def other_vocabulary(model: Path, folder: Path) -> None:
    """A draft's folder that differs from the model in the size of its vocabulary."""
    config = json.loads((model / "config.json").read_text())
    config["vocab_size"] += 64
    (folder / "config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        (folder / name).write_bytes((model / name).read_bytes())


def flags_dump(python: Path) -> dict[str, Any]:
    """What the engine accepts; the server's script without its folder."""
    done = subprocess.run(dump_command(str(python), None), capture_output=True, check=True)
    dump: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    dump["serve_module"] = [Path(part).name for part in dump["serve_module"]]
    return dump


def main() -> None:
    """Record the cases that were named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("cases", nargs="*")
    asked = parser.parse_args()
    model = str(asked.model.absolute())
    dump = flags_dump(asked.python)
    label = f"{dump['vllm_version']}-{dump['build']}"
    if not asked.cases or "flags" in asked.cases:
        text = json.dumps(dump, indent=1) + "\n"
        (HERE / f"flags-{label}.json").write_text(scrubbed(text, model))
    with tempfile.TemporaryDirectory() as scratch:
        draft = Path(scratch) / "draft"
        draft.mkdir()
        other_vocabulary(asked.model, draft)
        for name in (*FAILURES, *STARTS):
            if asked.cases and name not in asked.cases:
                continue
            log = Path(scratch) / "log"
            told = record(asked.python.absolute(), model, name, kept=log, draft=draft)
            kind = "startup" if name in STARTS else "fail"
            text = scrubbed(log.read_text(errors="replace"), model)
            (HERE / f"{kind}-{name}-{label}.log").write_text(text)
            for file, said in told.items():
                stem, ending = file.split(".")
                (HERE / f"{stem}-{name}-{label}.{ending}").write_text(scrubbed(said, model))
            sys.stdout.write(f"{name}: {len(text.splitlines())} lines\n")


if __name__ == "__main__":
    main()
