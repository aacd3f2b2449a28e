"""Settings of the proxy process, read once from `ROOFTUNE_*`."""

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from advisor.units import MIB


class ProxySettings(BaseSettings):
    """Connect, first byte and idle limits are separate: a healthy stream has no total limit.

    `proxy_first_byte_timeout_s` runs until a stream's first token, or until a plain answer begins,
    which engines send when it is finished: long, because requests queue in the engine.
    `proxy_idle_timeout_s` is the longest silence after that, `proxy_client_stall_s` how long a
    client may leave its answer unread, `proxy_client_silence_s` after how long a client whose
    machine does not answer counts as gone. `proxy_check_s` is the interval in which the proxy looks
    whether engines listen, `proxy_refresh_s` that in which it reads the deployments.
    """

    model_config = SettingsConfigDict(env_prefix="ROOFTUNE_", frozen=True, extra="ignore")

    database_url: str
    proxy_port: int = Field(default=8322, ge=0, le=65535)
    proxy_connect_timeout_s: float = Field(default=3.0, gt=0)
    proxy_first_byte_timeout_s: float = Field(default=600.0, gt=0)
    proxy_idle_timeout_s: float = Field(default=120.0, gt=0)
    proxy_client_stall_s: float = Field(default=60.0, gt=0)
    proxy_client_silence_s: float = Field(default=30.0, ge=1)
    proxy_check_s: float = Field(default=0.5, gt=0)
    proxy_refresh_s: float = Field(default=0.5, gt=0)
    proxy_key_cache_s: float = Field(default=60.0, ge=0)
    proxy_max_body_bytes: int = Field(default=32 * MIB, ge=1)
