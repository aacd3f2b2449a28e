"""A server that answers with given bytes, cut as given: what no well-behaved server would send."""

import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
READ_BYTES = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """One answer: `parts` in writes of their own, `gap_s` apart.

    Then the connection is closed after `hold_s`; with `reset` it is torn down instead.
    """

    parts: Sequence[bytes]
    gap_s: float = 0.0
    hold_s: float = 0.0
    reset: bool = False


@dataclass(slots=True)
class Scripted:
    """The running server; `requests` are the whole requests that came, in order.

    `gone_s` holds how long after its request a client left before its answer was complete.
    """

    port: int
    requests: list[bytes] = field(default_factory=list)
    gone_s: list[float] = field(default_factory=list)


@contextmanager
def scripted_server(script: Callable[[int, bytes], Script]) -> Iterator[Scripted]:
    """`script` gets the number of a request (from 0) and its bytes."""
    with socket.create_server(("127.0.0.1", 0), backlog=256) as listening:
        server = Scripted(port=listening.getsockname()[1])
        over = threading.Event()
        threads: list[threading.Thread] = []
        listening.settimeout(0.1)

        def accept() -> None:
            while not over.is_set():
                with suppress(TimeoutError):
                    client, _ = listening.accept()
                    client.settimeout(10)
                    threads.append(threading.Thread(target=_answer, args=(server, client, script)))
                    threads[-1].start()

        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield server
        finally:
            over.set()
            accepting.join()
            for thread in threads:
                thread.join()


def _answer(
    server: Scripted, client: socket.socket, script: Callable[[int, bytes], Script]
) -> None:
    with client:
        try:
            request = _request(client)
        except (OSError, EOFError):
            return
        number = len(server.requests)
        server.requests.append(request)
        answer = script(number, request)
        began_s = time.monotonic()
        try:
            for part in answer.parts:
                client.sendall(part)
                time.sleep(answer.gap_s)
            client.settimeout(answer.hold_s or 0.001)
            with suppress(TimeoutError):
                if client.recv(1) == b"" and answer.hold_s:
                    server.gone_s.append(time.monotonic() - began_s)
        except OSError:
            server.gone_s.append(time.monotonic() - began_s)
        if answer.reset:
            # Closing with this option tears the connection down.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")


def _request(client: socket.socket) -> bytes:
    """Head and body, by its length."""
    seen = b""
    while b"\r\n\r\n" not in seen:
        seen += _more(client)
    head, _, body = seen.partition(b"\r\n\r\n")
    length = next(
        int(line.partition(b":")[2])
        for line in head.split(b"\r\n")
        if line.lower().startswith(b"content-length:")
    )
    while len(body) < length:
        body += _more(client)
    return head + b"\r\n\r\n" + body


def _more(client: socket.socket) -> bytes:
    piece = client.recv(READ_BYTES)
    if not piece:
        raise EOFError
    return piece
