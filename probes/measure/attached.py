"""A server that somebody else runs: seen through its endpoint only, never restarted or reset."""

import http.client
import json
import ssl
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from advisor.errors import InvalidInput, Unavailable, UnknownName
from advisor.measurement.asked import Salt
from advisor.measurement.report import Rank
from advisor.serving import EngineFacts
from probes.measure.server import Address, Identity
from probes.power import PowerMeter
from probes.vllm.metrics import EngineSnapshot, UnusableCounters, parse_metrics

TIMEOUT_S = 30.0
_MOST_BYTES = 16 << 20
_OK = 200
_UNAUTHORISED = frozenset({401, 403})
_PORTS = {"http": 80, "https": 443}
_KEY_REMEDY = "give its key as a file: --api-key-file"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachedServer:
    """An endpoint that may not be restarted; its counters where ``/metrics`` is open."""

    address: Address
    identity: Identity
    has_counters: bool
    rank: Rank = Rank.CLIENT_SIDE
    tokens: tuple[str, ...] = field(default=())
    facts: EngineFacts | None = None

    def salt(self, asked: Salt) -> Salt:
        """Of vLLM its own field; other servers may refuse one that they do not know."""
        if asked is not Salt.AUTO:
            return asked
        return Salt.FIELD if self.identity.is_vllm else Salt.NONE

    def fresh(self) -> None:
        """Nothing: the cache serves others too."""

    def snapshot(self) -> EngineSnapshot | None:
        """Its counters now; None where they are closed or no longer answer."""
        return _counters(self.address) if self.has_counters else None

    def check(self) -> None:
        """Raise `Unavailable` when nothing answers any more."""
        _ask(self.address, "/v1/models")

    def watched(
        self, cancelled: threading.Event, *, busy: bool
    ) -> AbstractContextManager[threading.Event]:
        """Only the client's own limits end a load: nothing else is known of the server."""
        del busy
        return nullcontext(cancelled)

    def meter(self) -> PowerMeter:
        """Nothing is read: its GPUs are not known to be here."""
        return PowerMeter(source=None, reason="the server is not ours")


def address_of(url: str, api_key: str | None = None) -> Address:
    """The parts of ``http(s)://host[:port][/path]``; a final ``/v1`` is not part of the path."""
    split = urlsplit(url if "://" in url else f"http://{url}")
    if split.scheme not in _PORTS or not split.hostname or split.username or split.query:
        raise InvalidInput(
            "URL", "is not the address of a server: http://host:port or https://host"
        )
    try:
        port = split.port or _PORTS[split.scheme]
    except ValueError:
        raise InvalidInput("URL", "its port is no number up to 65535") from None
    return Address(
        host=split.hostname,
        port=port,
        base_path=split.path.rstrip("/").removesuffix("/v1"),
        tls=split.scheme == "https",
        api_key=api_key,
    )


def attach(address: Address, model: str | None) -> AttachedServer:
    """Look at a server: the model it serves, its engine, whether its counters are open.

    Raises `Unavailable` for one that does not answer or wants another key, `UnknownName` for a
    model that it does not serve, `InvalidInput` where one must be chosen.
    """
    card = _model_card(address, model)
    snapshot = _counters(address)
    version = _version(address)
    limit = card.get("max_model_len")
    is_vllm = snapshot is not None or card.get("owned_by") == "vllm"
    return AttachedServer(
        address=address,
        identity=Identity(
            model=str(card["id"]),
            engine="vllm" if is_vllm else None,
            version=version if is_vllm else None,
            max_model_len=limit if isinstance(limit, int) else None,
        ),
        has_counters=snapshot is not None,
    )


def _model_card(address: Address, model: str | None) -> Mapping[str, object]:
    body = _ask(address, "/v1/models")
    try:
        listed = json.loads(body)["data"]
        cards: dict[str, dict[str, object]] = {str(card["id"]): dict(card) for card in listed}
    except (ValueError, KeyError, TypeError):
        raise InvalidInput(
            "URL", f"{address.shown} is no OpenAI-compatible server: it lists no models"
        ) from None
    if model is not None and model not in cards:
        raise UnknownName("model", model, sorted(cards))
    if model is None and len(cards) != 1:
        known = ", ".join(sorted(cards)) or "none"
        raise InvalidInput("--model", f"the server lists {known}: name the one to measure")
    return cards[model if model is not None else next(iter(cards))]


def _version(address: Address) -> str | None:
    status, body = _quietly(address, "/version")
    try:
        version = json.loads(body)["version"] if status == _OK else None
    except (ValueError, KeyError, TypeError):
        return None
    return str(version)[:80] if version else None


def _counters(address: Address) -> EngineSnapshot | None:
    status, body = _quietly(address, "/metrics")
    if status != _OK:
        return None
    try:
        return parse_metrics(body.decode(errors="replace"))
    except (UnusableCounters, ValueError):
        return None


def _quietly(address: Address, path: str) -> tuple[int, bytes]:
    """Status 0 where nothing answered: what is optional may be closed."""
    try:
        return _exchange(address, path)
    except (OSError, http.client.HTTPException):
        return 0, b""


def _ask(address: Address, path: str) -> bytes:
    try:
        status, body = _exchange(address, path)
    except ssl.SSLError as error:
        raise Unavailable(
            f"{address.shown} does not speak TLS as expected ({error.reason or 'no reason given'})",
            "check http or https, and that its certificate is one that this machine trusts",
        ) from error
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable(
            f"nothing answers at {address.shown} ({_name(error)})",
            "start the server, or correct the address",
        ) from error
    if status in _UNAUTHORISED:
        refused = "the key" if address.api_key else "a request without a key"
        raise Unavailable(f"{address.shown} refuses {refused} (HTTP {status})", _KEY_REMEDY)
    if status != _OK:
        raise Unavailable(
            f"{address.shown}{path} answers HTTP {status}",
            "give the address before /v1 of an OpenAI-compatible server",
        )
    return body


def _name(error: Exception) -> str:
    return (getattr(error, "strerror", None) or type(error).__name__).lower()


def _exchange(address: Address, path: str) -> tuple[int, bytes]:
    """Status and body; straight to the server, whatever proxy the environment names."""
    kind = http.client.HTTPSConnection if address.tls else http.client.HTTPConnection
    connection = kind(address.host, address.port, timeout=TIMEOUT_S)
    headers = {"Authorization": f"Bearer {address.api_key}"} if address.api_key else {}
    try:
        connection.request("GET", address.base_path + path, headers=headers)
        response = connection.getresponse()
        return response.status, response.read(_MOST_BYTES)
    finally:
        connection.close()
