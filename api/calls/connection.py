"""What every call of the client stands on: one connection, as one principal."""

from types import TracebackType
from typing import Self
from urllib.parse import quote

import httpx

from api.wire import Wire

TIMEOUT_S = 60.0


class Connection:
    """A connection to one Rooftune service; use it as a context manager.

    A refused request raises `ApiProblem`, a service that does not answer `Unavailable`.
    `transport` is for tests.
    """

    def __init__(
        self,
        base_url: str,
        key: str | None,
        *,
        project: str | None = None,
        timeout_s: float = TIMEOUT_S,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        headers = {"accept": "application/json"}
        if key is not None:
            headers["authorization"] = f"Bearer {key}"
        if project is not None:
            headers["x-project"] = project
        self.base_url = base_url.rstrip("/")
        self._wire = Wire(
            httpx.Client(
                base_url=self.base_url, headers=headers, timeout=timeout_s, transport=transport
            )
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._wire.http.close()


def part(identifier: str) -> str:
    """An identifier as one part of a path."""
    return quote(identifier, safe="")


def page_of(limit: int, cursor: str | None) -> dict[str, str]:
    """The query of a list route."""
    return {"limit": str(limit)} | ({"cursor": cursor} if cursor else {})
