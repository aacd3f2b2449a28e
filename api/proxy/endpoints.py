"""Which deployment answers under which name: a table refreshed from the database."""

import asyncio
import hashlib
import logging
import math
import time
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session, sessionmaker

from advisor.errors import NotAllowed, RooftuneError, Unavailable
from advisor.states import DeploymentState
from db import deployments, identity
from db.session import transaction

log = logging.getLogger(__name__)
STALE_KEY_S = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One deployment as the proxy needs it; without host and port it is not serving."""

    deployment_id: uuid.UUID
    project_id: uuid.UUID
    name: str
    state: DeploymentState
    reason: str | None
    host: str | None
    port: int | None
    served_model_name: str | None
    restarts: int = 0

    @property
    def address(self) -> tuple[str, int] | None:
        """Where the engine listens, None while it does not serve."""
        serving = self.state is DeploymentState.SERVING and self.served_model_name is not None
        if not serving or self.host is None or self.port is None:
            return None
        return self.host, self.port

    @property
    def base_url(self) -> str | None:
        """Address of the engine as a URL, None while it does not serve."""
        return None if self.address is None else "http://{}:{}".format(*self.address)


@dataclass(slots=True)
class Directory:
    """Endpoints by name and verified keys, each remembered for a short time only."""

    sessions: sessionmaker[Session]
    key_cache_s: float
    endpoints: Mapping[str, Endpoint] = field(default_factory=dict)
    loaded: bool = False
    _keys: dict[str, tuple[float, identity.Principal]] = field(default_factory=dict)
    _checks: dict[str, "asyncio.Task[identity.Principal]"] = field(default_factory=dict)

    def load(self) -> None:
        """Read the table once (blocking)."""
        with transaction(self.sessions) as session:
            rows = deployments.newest_by_name(session)
            self.endpoints = {
                row.name: Endpoint(
                    deployment_id=row.id,
                    project_id=row.project_id,
                    name=row.name,
                    state=DeploymentState(row.state),
                    reason=row.reason,
                    host=row.host,
                    port=row.port,
                    served_model_name=row.served_model_name,
                    restarts=row.restarts,
                )
                for row in rows
            }
        self.loaded = True

    async def keep_fresh(self, every_s: float) -> None:
        """Reload for ever; a database that is away leaves the last table in force.

        In a thread of its own: checks of keys, which take long, must not hold up the table.
        """
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="deployments") as reader:
            while True:
                try:
                    await asyncio.get_running_loop().run_in_executor(reader, self.load)
                except (SQLAlchemyError, RooftuneError) as error:
                    log.warning("deployment table not refreshed: %s", type(error).__name__)
                await asyncio.sleep(every_s)

    async def principal(self, key_text: str) -> identity.Principal:
        """Who a key belongs to; raises what `identity.authenticate` raises.

        Requests that bring the same key at once wait for one check, for a check takes milliseconds
        of a processor and megabytes. While the database is away nobody can revoke a key: one that
        was good a short while ago is still believed.
        """
        fingerprint = hashlib.sha256(key_text.encode()).hexdigest()
        known = self._keys.get(fingerprint)
        age_s = math.inf if known is None else time.monotonic() - known[0]
        if known is not None and age_s < self.key_cache_s:
            return known[1]
        try:
            return await asyncio.shield(self._check_of(fingerprint, key_text))
        except (SQLAlchemyError, Unavailable):
            if known is None or age_s > self.key_cache_s + STALE_KEY_S:
                raise
            return known[1]

    def _check_of(self, fingerprint: str, key_text: str) -> "asyncio.Task[identity.Principal]":
        """The check of this key that is under way, or a new one."""
        running = self._checks.get(fingerprint)
        if running is None:
            running = asyncio.ensure_future(self._checked(fingerprint, key_text))
            self._checks[fingerprint] = running
            running.add_done_callback(lambda task: self._done(fingerprint, task))
        return running

    async def _checked(self, fingerprint: str, key_text: str) -> identity.Principal:
        try:
            principal = await asyncio.to_thread(self._authenticate, key_text)
        except NotAllowed:
            self._keys.pop(fingerprint, None)
            raise
        self._keys[fingerprint] = (time.monotonic(), principal)
        return principal

    def _done(self, fingerprint: str, task: "asyncio.Task[identity.Principal]") -> None:
        del self._checks[fingerprint]
        if not task.cancelled():
            task.exception()  # seen, though everybody who waited may have left

    def _authenticate(self, key_text: str) -> identity.Principal:
        with transaction(self.sessions) as session:
            return identity.authenticate(session, key_text, identity.utc_now())

    def visible(self, principal: identity.Principal) -> dict[str, Endpoint]:
        """Endpoints of the caller's projects by name."""
        return {
            name: endpoint
            for name, endpoint in self.endpoints.items()
            if endpoint.project_id in principal.project_ids
        }
