"""Which deployment answers under which name: a table refreshed from the database."""

import asyncio
import hashlib
import logging
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session, sessionmaker

from advisor.errors import RooftuneError
from advisor.states import DeploymentState
from db import deployments, identity
from db.session import transaction

log = logging.getLogger(__name__)


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

    @property
    def base_url(self) -> str | None:
        """Address of the engine, None while it does not serve."""
        if self.state is not DeploymentState.SERVING or self.host is None or self.port is None:
            return None
        return f"http://{self.host}:{self.port}"


@dataclass(slots=True)
class Directory:
    """Endpoints by name and verified keys, each remembered for a short time only."""

    sessions: sessionmaker[Session]
    key_cache_s: float
    endpoints: Mapping[str, Endpoint] = field(default_factory=dict)
    loaded: bool = False
    _keys: dict[str, tuple[float, identity.Principal]] = field(default_factory=dict)

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
                )
                for row in rows
            }
        self.loaded = True

    async def keep_fresh(self, every_s: float) -> None:
        """Reload for ever; a database that is away leaves the last table in force."""
        while True:
            try:
                await asyncio.to_thread(self.load)
            except (SQLAlchemyError, RooftuneError) as error:
                log.warning("deployment table not refreshed: %s", type(error).__name__)
            await asyncio.sleep(every_s)

    async def principal(self, key_text: str) -> identity.Principal:
        """Who a key belongs to; raises what `identity.authenticate` raises."""
        fingerprint = hashlib.sha256(key_text.encode()).hexdigest()
        now = time.monotonic()
        known = self._keys.get(fingerprint)
        if known is not None and now - known[0] < self.key_cache_s:
            return known[1]
        principal = await asyncio.to_thread(self._authenticate, key_text)
        self._keys[fingerprint] = (now, principal)
        return principal

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
