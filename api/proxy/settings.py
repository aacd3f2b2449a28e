"""Settings of the proxy process, read once from `ROOFTUNE_*`."""

from pydantic_settings import BaseSettings, SettingsConfigDict


class ProxySettings(BaseSettings):
    """Connect, first byte and idle limits are separate: a healthy stream has no total limit."""

    model_config = SettingsConfigDict(env_prefix="ROOFTUNE_", frozen=True, extra="ignore")

    database_url: str
    proxy_port: int = 8322
    proxy_connect_timeout_s: float = 3.0
    proxy_first_byte_timeout_s: float = 600.0
    proxy_idle_timeout_s: float = 120.0
    proxy_refresh_s: float = 0.5
    proxy_key_cache_s: float = 60.0
    proxy_max_body_bytes: int = 32 << 20
