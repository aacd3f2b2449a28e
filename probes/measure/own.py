"""An engine that we started ourselves: reset between loads, its counters and log at hand."""

import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from advisor.measurement.asked import Salt
from advisor.measurement.report import Rank
from advisor.serving import EngineFacts
from probes.measure.server import Address, Identity
from probes.power import PowerMeter, meter_of
from probes.vllm.engine import RunningEngine
from probes.vllm.flags import CPU
from probes.vllm.metrics import EngineSnapshot
from probes.vllm.watchdog import watched


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnServer:
    """A `RunningEngine` as a server under load, of an installation for `build` (cpu, cuda)."""

    engine: RunningEngine
    build: str = CPU
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    rank: Rank = Rank.OWN_ENGINE

    @property
    def address(self) -> Address:
        """Where requests go."""
        return Address(host=self.engine.host, port=self.engine.port)

    @property
    def identity(self) -> Identity:
        """Its served name, which no other server has, and what its log said."""
        facts = self.engine.facts
        return Identity(
            model=self.engine.served_model_name,
            engine="vllm",
            version=facts.vllm_version,
            max_model_len=facts.max_model_len,
        )

    @property
    def facts(self) -> EngineFacts:
        """What its log and its counters said at the start."""
        return self.engine.facts

    @property
    def tokens(self) -> tuple[str, ...]:
        """The mark in the environment of all its processes."""
        return (self.engine.token,)

    def salt(self, asked: Salt) -> Salt:
        """None is needed: the cache is emptied before every load."""
        return Salt.NONE if asked is Salt.AUTO else asked

    def fresh(self) -> None:
        """Empty the prefix cache."""
        self.engine.reset_prefix_cache()

    def snapshot(self) -> EngineSnapshot:
        """Its counters now."""
        return self.engine.snapshot()

    def check(self) -> None:
        """Raise `EngineFailed` with what its log says, if it died."""
        self.engine.check_alive()

    def watched(
        self, cancelled: threading.Event, *, busy: bool
    ) -> AbstractContextManager[threading.Event]:
        """A dead or hung engine ends the load at once."""
        return watched(self.engine, cancelled, busy=busy)

    def meter(self) -> PowerMeter:
        """The GPUs that the engine sees."""
        return meter_of(self.build, self.environment)
