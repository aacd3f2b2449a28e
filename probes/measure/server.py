"""What a measurement asks of a server, whether we started it or found it serving."""

import threading
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from advisor.measurement.asked import Salt
from advisor.measurement.report import Rank
from advisor.serving import EngineFacts
from probes.power import PowerMeter
from probes.vllm.metrics import EngineSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a server is. `base_path` stands before ``/v1``; the key is never shown."""

    host: str
    port: int
    base_path: str = ""
    tls: bool = False
    api_key: str | None = field(default=None, repr=False)

    @property
    def shown(self) -> str:
        """As an address for people."""
        scheme = "https" if self.tls else "http"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{self.port}{self.base_path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who answers: the served model's name and, where they are told, engine and length limit."""

    model: str
    engine: str | None
    version: str | None
    max_model_len: int | None

    @property
    def is_vllm(self) -> bool:
        """Whether vLLM's own request fields are understood."""
        return self.engine == "vllm"

    @property
    def title(self) -> str | None:
        """Engine and version, as far as known."""
        if self.engine is None:
            return None
        return f"{self.engine} {self.version}" if self.version else self.engine


class Server(Protocol):
    """A server under load."""

    @property
    def rank(self) -> Rank:
        """How much what is measured of it can decide."""
        ...

    @property
    def address(self) -> Address:
        """Where requests go."""
        ...

    @property
    def identity(self) -> Identity:
        """Who it is."""
        ...

    @property
    def facts(self) -> EngineFacts | None:
        """What an engine of ours said of itself."""
        ...

    @property
    def tokens(self) -> tuple[str, ...]:
        """Marks of processes that are the engine's own, and so no neighbours."""
        ...

    def salt(self, asked: Salt) -> Salt:
        """How its prefix cache is kept apart between loads; `asked` AUTO is decided here."""
        ...

    def fresh(self) -> None:
        """Before a load: empty the prefix cache, where that may be done."""
        ...

    def snapshot(self) -> EngineSnapshot | None:
        """Its counters now, None where they cannot be read."""
        ...

    def check(self) -> None:
        """Raise `EngineFailed` or `Unavailable` when it is gone."""
        ...

    def watched(
        self, cancelled: threading.Event, *, busy: bool
    ) -> AbstractContextManager[threading.Event]:
        """Watch it during a load; yields the event that ends the load. `busy`: never without."""
        ...

    def meter(self) -> PowerMeter:
        """Reads the GPUs during a load, where they are ours to read."""
        ...
