"""`rooftune record`: calls pass byte for byte, and a sample that the service takes is written."""

import json
import os
import resource
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import openai
import pytest

from advisor.errors import InvalidInput, Unavailable
from advisor.traffic.privacy.redaction import Redactor
from advisor.traffic.reading import read_trace
from advisor.traffic.trace import Request, Trace
from api.cli import main
from api.proxy.recorder import Counts, Recorder, openai_base
from api.proxy.sample import SampleFile
from tests.api.front import Engine, leave, running, until
from tests.fakes.ports import free_port
from tests.fakes.small_engine import SmallEngine

StartEngine = Callable[..., Engine]
ROOT = Path(__file__).resolve().parent.parent.parent
CHAT = "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "SECRETWORD, 你好"}]
KEY = {"Authorization": "Bearer upstream-key"}


@contextmanager
def recording(
    port: int, path: Path, *, max_bytes: int | None = None, **options: object
) -> Iterator[tuple[str, Recorder]]:
    """A recorder in front of a port; the file is whole when it ends."""
    file = SampleFile(path, max_bytes)
    file.open()
    upstream = openai_base(f"http://127.0.0.1:{port}")
    recorder = Recorder(upstream=upstream, file=file, **options)  # type: ignore[arg-type]
    try:
        with running(recorder.app()) as url:
            yield url, recorder
    finally:
        file.close()


def read(path: Path) -> Trace:
    with path.open("rb") as stream:
        return read_trace(stream, filename=path.name)


def only(path: Path) -> Request:
    (request,) = read(path).requests
    return request


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("operation", ["chat/completions", "completions"])
def test_calls_pass_byte_for_byte_and_are_recorded(
    tmp_path: Path, operation: str, *, stream: bool
) -> None:
    """Body and answer as they were, in the OpenAI operations with a text."""
    chat = operation == "chat/completions"
    asked = {"messages": MESSAGES} if chat else {"prompt": "SECRETWORD"}
    options = {"stream_options": {"include_usage": True}} if stream else {}
    told = {**asked, **options, "stream": stream, "max_tokens": 9, "temperature": 0.5}
    body = json.dumps(told, indent=3, ensure_ascii=False).encode()
    path = tmp_path / "sample.jsonl"
    with SmallEngine() as engine, recording(engine.port, path) as (url, recorder):
        direct = httpx.post(f"http://127.0.0.1:{engine.port}/v1/{operation}", content=body)
        headers = {**KEY, "X-Session-Id": "s1", "X-Custom": "kept"}
        through = httpx.post(f"{url}/v1/{operation}?a=%2Fb", content=body, headers=headers)
        written = until(lambda: recorder.counts.recorded == 1)

    held = only(path)
    assert written
    assert (through.status_code, through.content) == (200, direct.content)
    assert through.headers["content-type"] == direct.headers["content-type"]
    assert engine.asked[1].raw == body
    assert engine.asked[1].path == f"/v1/{operation}?a=%2Fb"
    assert engine.asked[1].headers["authorization"] == "Bearer upstream-key"
    assert engine.asked[1].headers["x-custom"] == "kept"
    assert json.loads(held.messages or "null") == (MESSAGES if chat else None)
    assert held.prompt == (None if chat else "SECRETWORD")
    assert held.response == ("alpha beta gamma delta end" if stream else "alpha beta")
    assert (held.prompt_tokens, held.output_tokens) == (7, 5 if stream else 2)
    assert (held.max_tokens, held.temperature, held.session) == (9, 0.5, "s1")
    assert held.arrival_s == 0
    assert "upstream-key" not in path.read_text()


def test_what_is_written_is_accepted_by_inspect(
    engine_of: StartEngine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With an OpenAI client in front, whichever engine is behind."""
    engine = engine_of("ok")
    path = tmp_path / "sample.jsonl"
    with recording(engine.port, path) as (url, recorder):
        with openai.OpenAI(base_url=f"{url}/v1", api_key="upstream-key") as client:
            listed = [model.id for model in client.models.list()]
            for stream in (True, False):
                answer = client.chat.completions.create(
                    model="internal-x",
                    messages=[{"role": "user", "content": "hi"}],
                    stream=stream,
                )
                _ = list(answer) if stream else answer
        written = until(lambda: recorder.counts.recorded == 2)
    code = main(["workload", "inspect", str(path), "--json"])
    report = json.loads(capsys.readouterr().out)["report"]

    assert written
    assert listed == ["internal-x"]
    assert (code, report["accepted"], report["rejected"]) == (0, 2, 0)
    assert report["warnings"] == []
    assert recorder.counts == Counts(recorded=2, passed_on=1)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("mode", ["error_openai", "inband", "cut"])
def test_a_failed_call_is_counted_and_not_written(tmp_path: Path, mode: str) -> None:
    """The client gets what the upstream said; a sample holds no answers that were none."""
    path = tmp_path / "sample.jsonl"
    with SmallEngine(mode=mode) as engine, recording(engine.port, path) as (url, recorder):
        asked = {"messages": MESSAGES, "stream": True}
        direct = httpx.post(f"http://127.0.0.1:{engine.port}{CHAT}", json=asked)
        through = httpx.post(f"{url}{CHAT}", json=asked)
        counted = until(lambda: recorder.counts.failed == 1)

    assert (through.status_code, through.content) == (direct.status_code, direct.content)
    assert counted
    assert path.read_bytes() == b""


@pytest.mark.parametrize(
    "mode, stream", [("slowstream", True), ("slowunary", False), ("rolefirst", True)]
)
def test_a_client_that_leaves_is_counted_and_frees_the_upstream(
    engine_of: StartEngine, tmp_path: Path, mode: str, *, stream: bool
) -> None:
    """Case D-01 holds here too."""
    engine = engine_of(mode, delay_s=20)
    path = tmp_path / "sample.jsonl"
    with recording(engine.port, path) as (url, recorder):
        leave(url, CHAT, stream=stream)
        gone = until(engine.client_gone)
        counted = until(lambda: recorder.counts.cancelled == 1)

    assert (gone, counted) == (True, True)
    assert path.read_bytes() == b""


@pytest.mark.parametrize(
    "asked",
    [
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]},
        {"prompt": [1, 2, 3]},
        {"prompt": ["SECRETWORD", "two"]},
        {},
    ],
)
def test_what_no_replay_could_use_is_passed_on_and_counted(
    tmp_path: Path, asked: dict[str, object]
) -> None:
    """Pictures, token ids, several prompts: with a reason that quotes nothing."""
    path = tmp_path / "sample.jsonl"
    with SmallEngine() as engine, recording(engine.port, path) as (url, recorder):
        through = httpx.post(f"{url}{CHAT}", json=asked)
        counted = until(lambda: recorder.counts.unusable.total() == 1)

    (reason,) = recorder.counts.unusable
    assert (through.status_code, counted) == (200, True)
    assert "SECRETWORD" not in reason
    assert path.read_bytes() == b""


def test_an_unreachable_upstream_is_an_error_in_the_openai_form(tmp_path: Path) -> None:
    """503 at once, counted as failed."""
    with recording(free_port(), tmp_path / "sample.jsonl") as (url, recorder):
        response = httpx.post(f"{url}{CHAT}", json={"messages": MESSAGES})
        counted = until(lambda: recorder.counts.failed == 1)

    assert response.status_code == 503
    assert "not reachable" in response.json()["error"]["message"]
    assert counted


def test_limits_stop_the_recording_and_not_the_calls(tmp_path: Path) -> None:
    """Somebody's traffic runs through here: it goes on."""
    said: list[str] = []
    path = tmp_path / "sample.jsonl"
    with SmallEngine() as engine:
        with recording(engine.port, path, limit=2, said=said.append) as (url, recorder):
            codes = [
                httpx.post(f"{url}{CHAT}", json={"messages": MESSAGES}).status_code for _ in "1234"
            ]
            until(lambda: recorder.counts.above_limit == 2)
        by_rows, size = recorder.counts, path.stat().st_size
        with recording(engine.port, path, max_bytes=size + 10) as (url, recorder):
            httpx.post(f"{url}{CHAT}", json={"messages": MESSAGES})
            until(lambda: recorder.counts.above_limit == 1)

    assert codes == [200] * 4
    assert (by_rows.recorded, by_rows.above_limit) == (2, 2)
    assert len(said) == 1
    assert recorder.counts == Counts(above_limit=1)
    assert (read(path).report.accepted, path.stat().st_size) == (2, size)


def test_redaction_replaces_what_names_a_person(tmp_path: Path) -> None:
    """Before anything is written; the upstream gets the words as they are."""
    text = "write to ada@example.org"
    path = tmp_path / "sample.jsonl"
    with (
        SmallEngine() as engine,
        recording(engine.port, path, redactor=Redactor(b"secret")) as (url, recorder),
    ):
        asked = {"messages": [{"role": "user", "content": text}]}
        httpx.post(f"{url}{CHAT}", json=asked, headers={"X-Session-Id": "ada@example.org"})
        until(lambda: recorder.counts.recorded == 1)

    held = only(path)
    said = json.loads(held.messages or "")[0]["content"]
    assert said == Redactor(b"secret").text(text)
    assert "ada" not in f"{said}{held.session}"
    assert len(held.session or "") == len("ada@example.org")
    assert text.encode() in engine.asked[0].raw


def test_only_routes_below_v1_of_this_machine_are_passed_on(tmp_path: Path) -> None:
    """Neither control routes beside them nor a page that calls this address by another name."""
    with SmallEngine() as engine, recording(engine.port, tmp_path / "s.jsonl") as (url, _):
        beside = httpx.post(f"{url}/sleep", json={}).status_code
        with httpx.Client() as client:
            above = client.send(_dotted(url)).status_code
        renamed = httpx.get(f"{url}/v1/models", headers={"Host": "evil.example"}).status_code

    assert (beside, above, renamed) == (404, 404, 400)
    assert engine.asked == []


def _dotted(url: str) -> httpx.Request:
    request = httpx.Request("POST", url)
    request.url = request.url.copy_with(raw_path=b"/v1/%2e%2e/sleep")
    return request


@pytest.mark.parametrize(
    "given, base",
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000/v1"),
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000/v1"),
        ("https://api.example/openai/v1/", "https://api.example/openai/v1"),
    ],
)
def test_the_upstream_may_be_given_with_its_base_path_or_without(given: str, base: str) -> None:
    """As people write it."""
    assert str(openai_base(given)) == base


@pytest.mark.parametrize(
    "given",
    ["", "localhost:8000", "ftp://x", "http://u:p@x/v1", "http://x/v1?key=1", "http://\x00"],
)
def test_an_upstream_that_is_no_plain_address_is_refused(given: str) -> None:
    """A key in an address would end up in a terminal."""
    with pytest.raises(InvalidInput, match="upstream"):
        openai_base(given)


def test_a_line_that_finds_no_room_leaves_no_half_of_it(tmp_path: Path) -> None:
    """A full disk ends a write in its middle; what was written of the line is taken back."""
    path = tmp_path / "sample.jsonl"
    file = SampleFile(path)
    file.open()
    file.append(b'{"prompt": "one"}\n')
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 5, hard))
    try:
        with pytest.raises(OSError, match="space"):
            file.append(b'{"prompt": "two"}\n')
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    file.append(b'{"prompt": "three"}\n')
    file.close()

    assert path.read_bytes() == b'{"prompt": "one"}\n{"prompt": "three"}\n'


def test_a_file_that_prompts_must_not_go_into_is_refused(tmp_path: Path) -> None:
    """Readable by others, a link, cut in a line, a folder, or written by another recorder."""
    wide, half, link = tmp_path / "wide", tmp_path / "half", tmp_path / "link"
    wide.touch(mode=0o644)
    half.touch(mode=0o600)
    half.write_bytes(b'{"prompt": "o')
    link.symlink_to(half)
    for path in (wide, half, link, tmp_path, tmp_path / "none" / "file"):
        with pytest.raises(InvalidInput, match="out"):
            SampleFile(path).open()
    first = SampleFile(tmp_path / "shared")
    first.open()
    with pytest.raises(Unavailable, match="another recorder"):
        SampleFile(tmp_path / "shared").open()
    first.close()

    assert half.read_bytes() == b'{"prompt": "o'


def test_the_command_says_what_is_wrong_before_it_listens(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """2 for what cannot be right, 3 for a port in use."""
    out = str(tmp_path / "s.jsonl")
    with SmallEngine() as engine:
        port = str(engine.port)
        codes = [
            main(["record", "--upstream", upstream, "--out", out, *more])
            for upstream, more in (
                ("localhost:8000", []),
                ("http://x", ["--host", "0.0.0.0"]),  # noqa: S104 - it is refused
                ("http://x", ["--limit", "0"]),
                ("http://x", ["--port", port]),
            )
        ]

    assert codes == [2, 2, 2, 3]
    assert not Path(out).exists()


def planted(port: int) -> subprocess.Popen[bytes]:
    script = ROOT / "tests" / "fakes" / "planted_engine.py"
    argv = [sys.executable, str(script), "serve", "--model", "m", "--port", str(port)]
    argv += ["--served-model-name", "internal-x"]
    return subprocess.Popen(argv, stdout=subprocess.DEVNULL)


@pytest.mark.processes
def test_the_command_ends_cleanly_and_says_what_comes_next(tmp_path: Path) -> None:
    """In a process of its own, in front of the planted engine, ended by Ctrl-C."""
    engine_port, port = free_port(), free_port()
    path = tmp_path / "my sample.jsonl"
    argv = [sys.executable, "-P", "-m", "api.cli", "record", "--port", str(port)]
    argv += ["--upstream", f"http://127.0.0.1:{engine_port}/v1", "--out", str(path), "--json"]
    engine = planted(engine_port)
    command = subprocess.Popen(
        argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},  # noqa: TID251 - its own process
    )  # fmt: skip
    try:
        url = f"http://127.0.0.1:{port}"
        up = until(lambda: answers(f"{url}/v1/models") or ended(command), within_s=120)
        for stream in (True, False):
            asked = {"model": "internal-x", "messages": MESSAGES, "stream": stream, "max_tokens": 8}
            httpx.post(f"{url}{CHAT}", json=asked, timeout=30)
        until(lambda: path.read_bytes().count(b"\n") == 2, within_s=30)
        command.send_signal(signal.SIGINT)
        out, err = command.communicate(timeout=60)
    finally:
        for process in (command, engine):
            process.kill()
            process.wait()

    summary = json.loads(out)
    assert up
    assert (command.returncode, summary["recorded"]) == (0, 2)
    assert summary["next"] == f"rooftune workload upload '{path}'"
    assert "base URL of your client" in err
    assert "SECRETWORD" not in out + err
    assert "Traceback" not in err
    assert read(path).report.rejected == 0


def ended(process: subprocess.Popen[str]) -> bool:
    """Whether it ended by itself; raises with what it said, which a timeout would hide."""
    if process.poll() is not None:
        raise ChildProcessError(process.communicate()[1])
    return False


def answers(url: str) -> bool:
    try:
        return httpx.get(url).status_code == 200
    except httpx.HTTPError:
        return False
