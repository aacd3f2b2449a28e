"""Where a plan's requests go, and what they look like on the wire."""

import asyncio
import socket
import ssl

from advisor.canonical import Json
from probes.load.connection import Exchange
from probes.load.lines import json_bytes
from probes.load.plan import LoadPlan, PlannedRequest


class Endpoint:
    """The server of a plan. Its name is looked up once, so that no request waits for that."""

    def __init__(self, plan: LoadPlan, addresses: list[str]) -> None:
        self._plan = plan
        self._addresses = addresses
        self._tls = ssl.create_default_context() if plan.tls else None

    @classmethod
    async def of(cls, plan: LoadPlan) -> "Endpoint":
        """The server of a plan; a name that nobody knows fails each request by itself."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(plan.connect_timeout_s):
                found = await loop.getaddrinfo(plan.host, plan.port, type=socket.SOCK_STREAM)
        except (OSError, TimeoutError):
            found = []
        addresses = [str(entry[4][0]) for entry in found]
        return cls(plan, list(dict.fromkeys(addresses)) or [plan.host])

    async def connect(self, exchange: Exchange) -> None:
        """A connection for `exchange`, at the first address that takes it."""
        last: OSError | None = None
        for address in self._addresses:
            try:
                await asyncio.get_running_loop().create_connection(
                    lambda: exchange,
                    address,
                    self._plan.port,
                    ssl=self._tls,
                    server_hostname=self._plan.host if self._tls is not None else None,
                )
            except OSError as error:
                last = error
            else:
                if address != self._addresses[0]:
                    self._addresses = [address, *(a for a in self._addresses if a != address)]
                return
        if last is not None:
            raise last

    def request_bytes(self, request: PlannedRequest, body: dict[str, Json]) -> bytes:
        """The whole request as it goes over the wire."""
        content = json_bytes(body)
        plan = self._plan
        host = f"[{plan.host}]" if ":" in plan.host else plan.host
        lines = [
            f"POST {plan.base_path}{request.path} HTTP/1.1",
            f"Host: {host}:{plan.port}",
            "Content-Type: application/json",
            "Accept: text/event-stream",
            f"Content-Length: {len(content)}",
            "Connection: close",
        ]
        if plan.api_key is not None:
            lines.append(f"Authorization: Bearer {plan.api_key}")
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + content
