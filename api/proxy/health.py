"""Whether the engines behind the deployments still listen, looked at by the proxy itself.

The agent watches `/health` and writes the deployment's state; but an agent that is gone writes
nothing, so the proxy looks too. It only connects: a busy engine answers that as fast as an idle
one, and a dead one refuses it at once.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field

from api.proxy.endpoints import Directory, Endpoint

LOG = logging.getLogger(__name__)
Address = tuple[str, int]


@dataclass(slots=True)
class Health:
    """Addresses that refused the last look; `timeout_s` is the wait for a connection."""

    timeout_s: float
    _down: set[Address] = field(default_factory=set)

    def is_down(self, endpoint: Endpoint) -> bool:
        """Whether a serving deployment's engine does not listen."""
        return endpoint.address is not None and endpoint.address in self._down

    async def watch(self, directory: Directory, every_s: float) -> None:
        """Look at every serving deployment, for ever."""
        while True:
            await self.look(directory.endpoints.values())
            await asyncio.sleep(every_s)

    async def look(self, endpoints: Iterable[Endpoint]) -> None:
        """One look at all of them at once."""
        serving = [endpoint for endpoint in endpoints if endpoint.address is not None]
        found = await asyncio.gather(*(self._listens(endpoint) for endpoint in serving))
        down = {e.address for e, up in zip(serving, found, strict=True) if not up and e.address}
        for endpoint in serving:
            if endpoint.address in down ^ self._down:
                word = "does not listen" if endpoint.address in down else "listens again"
                LOG.warning("the engine of deployment %s %s", endpoint.name, word)
        self._down = down

    async def _listens(self, endpoint: Endpoint) -> bool:
        if endpoint.address is None:
            return False
        try:
            async with asyncio.timeout(self.timeout_s):
                _, writer = await asyncio.open_connection(*endpoint.address)
        except (OSError, TimeoutError):
            return False
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        return True
