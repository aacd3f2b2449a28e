"""Keys at the proxy: how often they are checked, and what holds while the database is away."""

import asyncio
import time
import uuid
from dataclasses import dataclass

import httpx
import pytest
from typing_extensions import override

from advisor.errors import NotAllowed, Unavailable
from api.proxy.endpoints import STALE_KEY_S, Directory
from db.identity import Principal, Role
from tests.api.front import BEARER, serving

ADA = Principal(user_id=uuid.UUID(int=7), name="ada", role=Role.VIEWER, project_ids=frozenset())


@dataclass(slots=True)
class SlowDirectory(Directory):
    """Checks take a moment and can fail as a database does."""

    checks: int = 0
    away: bool = False
    revoked: bool = False

    @override
    def load(self) -> None:
        self.loaded = True

    @override
    def _authenticate(self, key_text: str) -> Principal:
        self.checks += 1
        time.sleep(0.05)
        if self.away:
            raise Unavailable("database", "start it")
        if self.revoked:
            raise NotAllowed("use this key", "ask for another")
        return ADA


def slow(key_cache_s: float = 0.0) -> SlowDirectory:
    return SlowDirectory(sessions=None, key_cache_s=key_cache_s)  # type: ignore[arg-type]


def test_requests_that_bring_one_key_at_once_wait_for_one_check() -> None:
    """A check costs milliseconds and megabytes: a hundred clients must not pay it each."""
    directory = slow(key_cache_s=60)

    async def together() -> list[Principal]:
        return await asyncio.gather(*(directory.principal("rt_a") for _ in range(100)))

    assert asyncio.run(together()) == [ADA] * 100
    assert directory.checks == 1


def test_a_key_is_believed_while_the_database_is_away_and_not_after_it_is_revoked() -> None:
    """Nobody can revoke a key in a database that is away; once it is back its word holds."""
    directory = slow()

    async def story() -> Principal:
        await directory.principal("rt_a")
        directory.away = True
        believed = await directory.principal("rt_a")
        with pytest.raises(Unavailable):
            await directory.principal("rt_unknown")
        directory.away, directory.revoked = False, True
        with pytest.raises(NotAllowed):
            await directory.principal("rt_a")
        directory.away = True
        with pytest.raises(Unavailable):
            await directory.principal("rt_a")
        return believed

    assert asyncio.run(story()) == ADA


def test_a_key_is_not_believed_for_ever() -> None:
    """After a while without the database the last word is too old."""
    directory = slow()

    async def story() -> None:
        await directory.principal("rt_a")
        ((fingerprint, (at_s, principal)),) = directory._keys.items()
        directory._keys[fingerprint] = (at_s - STALE_KEY_S - 1, principal)
        directory.away = True
        await directory.principal("rt_a")

    with pytest.raises(Unavailable):
        asyncio.run(story())


def test_one_who_leaves_does_not_cancel_the_check_of_the_others() -> None:
    """The check belongs to the key, not to the request that began it."""
    directory = slow(key_cache_s=60)

    async def story() -> Principal:
        leaving = asyncio.ensure_future(directory.principal("rt_a"))
        staying = asyncio.ensure_future(directory.principal("rt_a"))
        await asyncio.sleep(0.01)
        leaving.cancel()
        return await staying

    assert asyncio.run(story()) == ADA
    assert directory.checks == 1


def test_a_key_that_cannot_be_checked_is_no_wrong_key() -> None:
    """503 with Retry-After: a client that is told 401 gives up on a good key."""
    directory = slow()
    directory.away = True
    with serving(directory) as url:
        response = httpx.get(f"{url}/serve/prod/v1/models", headers=BEARER)

    assert response.status_code == 503
    assert response.headers["retry-after"] == "2"
