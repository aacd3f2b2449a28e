"""A TCP relay that cuts its first connections in the middle of an answer, as a network may do."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

PIECE = 4096
LOOK_S = 0.2


@dataclass(slots=True)
class CutWire:
    """Relays to `server`; the first `cuts` answers end after the bytes `after` came `times` times.

    `requests` are the heads of what was asked, in order.
    """

    server: tuple[str, int]
    after: bytes
    times: int = 1
    cuts: int = 1
    requests: list[bytes] = field(default_factory=list)
    url: str = ""

    def relay(self, near: socket.socket) -> None:
        """One connection, both ways, until either side ends it."""
        with near, socket.create_connection(self.server) as far:
            back = threading.Thread(target=self._answer, args=(far, near, len(self.requests)))
            self.requests.append(b"")
            place = len(self.requests) - 1
            back.start()
            with suppress(OSError):
                while piece := near.recv(PIECE):
                    self.requests[place] += piece
                    far.sendall(piece)
            with suppress(OSError):
                far.shutdown(socket.SHUT_RDWR)
            back.join()

    def _answer(self, far: socket.socket, near: socket.socket, place: int) -> None:
        seen = b""
        with suppress(OSError):
            while piece := far.recv(PIECE):
                seen += piece
                if place < self.cuts and seen.count(self.after) >= self.times:
                    found = -1
                    for _ in range(self.times):
                        found = seen.index(self.after, found + 1)
                    rest = found + len(self.after) - (len(seen) - len(piece))
                    near.sendall(piece[: max(0, rest)])
                    break
                near.sendall(piece)
        with suppress(OSError):
            near.shutdown(socket.SHUT_RDWR)


@contextmanager
def cut_wire(server_url: str, *, after: bytes, times: int = 1, cuts: int = 1) -> Iterator[CutWire]:
    """The relay on a loopback port; its `url` stands for the server's."""
    to = urlsplit(server_url)
    wire = CutWire(server=(to.hostname or "", to.port or 0), after=after, times=times, cuts=cuts)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(LOOK_S)
        wire.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        over = threading.Event()
        relays: list[threading.Thread] = []

        def accept() -> None:
            while not over.is_set():
                with suppress(TimeoutError):
                    near, _ = listening.accept()
                    near.settimeout(None)
                    relays.append(threading.Thread(target=wire.relay, args=(near,)))
                    relays[-1].start()

        accepting = threading.Thread(target=accept)
        accepting.start()
        yield wire
        over.set()
        accepting.join()
        for relay in relays:
            relay.join()
