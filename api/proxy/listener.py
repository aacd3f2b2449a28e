"""The socket that clients connect to, which notices the ones that vanish without a word."""

import socket

from advisor.errors import InvalidInput, Unavailable

PROBES = 3


def listen(host: str, port: int, *, silence_s: float) -> socket.socket:
    """A bound loopback socket; port 0 takes a free one. Connections inherit its options.

    A client whose machine or network is gone sends no end: after `silence_s` without an answer of
    its kernel, to a keepalive probe or to data, the connection counts as closed (case D-01).
    Raises `InvalidInput` for an address beyond this machine, `Unavailable` for a port in use.
    """
    if host not in {"127.0.0.1", "localhost"}:
        raise InvalidInput("host", "servers listen on this machine only: 127.0.0.1")
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    every_s = max(1, round(silence_s / (PROBES + 1)))
    options = {
        "TCP_KEEPIDLE": every_s,
        "TCP_KEEPINTVL": every_s,
        "TCP_KEEPCNT": PROBES,
        "TCP_USER_TIMEOUT": round(silence_s * 1000),
    }
    for name, value in options.items():
        if hasattr(socket, name):  # Linux has all of them
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    try:
        made.bind(("127.0.0.1", port))
    except OSError as error:
        made.close()
        raise Unavailable(
            f"port {port} cannot be taken ({error.strerror})",
            "end what listens there, or say another",
        ) from None
    return made
