"""`rooftune record`: a proxy in front of an endpoint of yours that writes a traffic sample."""

import secrets
import shlex
from contextlib import closing, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
import uvicorn
from rich.console import Console

from advisor.traffic.privacy.redaction import Redactor
from api.cli.answer import Exit, Json, print_json
from api.proxy.listener import listen
from api.proxy.recorder import Counts, Recorder, openai_base
from api.proxy.sample import SampleFile
from api.settings import DEFAULT_PORT
from api.up import interrupted_by_signals

RECORD_PORT = DEFAULT_PORT + 3  # `rooftune up` takes the three before it
CLIENT_SILENCE_S = 30.0
STOP_GRACE_S = 5


def record(
    *,
    upstream: Annotated[
        str, typer.Option(help="Your endpoint, as http://host:port or with its /v1.")
    ],
    out: Annotated[Path, typer.Option(help="The sample (JSONL), readable by you only.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = RECORD_PORT,
    host: Annotated[str, typer.Option(help="An address of this machine.")] = "127.0.0.1",
    limit: Annotated[int | None, typer.Option(min=1, help="Most rows; then only pass on.")] = None,
    max_bytes: Annotated[int | None, typer.Option(min=1, help="Most bytes of the file.")] = None,
    redact: Annotated[
        bool, typer.Option("--redact", help="Placeholders for addresses, keys and numbers.")
    ] = False,
    session_header: Annotated[
        str, typer.Option(help="The request header that names a session.")
    ] = "X-Session-Id",
    as_json: Json = False,
) -> None:
    """Pass OpenAI calls on to an endpoint and record them as a traffic sample, until Ctrl-C."""
    base = openai_base(upstream)
    narrator = Console(stderr=True, highlight=False, soft_wrap=True)
    file = SampleFile(out, max_bytes)
    listener = listen(host, port, silence_s=CLIENT_SILENCE_S)
    with closing(listener), closing(file):
        file.open()
        recorder = Recorder(
            upstream=base,
            file=file,
            limit=limit,
            redactor=Redactor(secrets.token_bytes(32)) if redact else None,
            session_header=session_header.lower(),
            said=lambda line: narrator.print(line, markup=False),
        )
        address = f"http://{host}:{listener.getsockname()[1]}/v1"
        narrator.print(f"recording {address} -> {base} into {out}", markup=False)
        narrator.print(f"Make {address} the base URL of your client. Ctrl-C ends.", markup=False)
        config = uvicorn.Config(
            recorder.app(),
            access_log=False,
            log_level="critical",
            server_header=False,
            timeout_graceful_shutdown=STOP_GRACE_S,
            loop="asyncio",
            http="h11",
        )
        with interrupted_by_signals(), suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[listener])
    _report(recorder.counts, out, as_json=as_json)
    if not recorder.counts.recorded:
        raise typer.Exit(Exit.NEGATIVE)


def _report(counts: Counts, out: Path, *, as_json: bool) -> None:
    command = f"rooftune workload upload {shlex.quote(str(out))}" if counts.recorded else None
    if as_json:
        print_json({**asdict(counts), "file": str(out), "next": command})
        return
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"recorded   {counts.recorded} requests in {out}", markup=False)
    rest = {
        "failed": counts.failed,
        "cancelled": counts.cancelled,
        "over limit": counts.above_limit,
        "unwritten": counts.not_written,
        "passed on": counts.passed_on,
    }
    for name, number in rest.items():
        if number:
            console.print(f"{name:<10} {number}", markup=False)
    for reason, number in counts.unusable.items():
        console.print(f"unusable   {number}: {reason}", markup=False)
    if command is not None:
        console.print(f"next       {command}", markup=False)
