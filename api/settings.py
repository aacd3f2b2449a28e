"""Settings of the API process, of `rooftune up` and of the command line, from `ROOFTUNE_*`."""

import os
from pathlib import Path

from pydantic import AliasChoices, Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from advisor.units import GIB, MIB

DEFAULT_DATA_DIR = Path(".rooftune")
DEFAULT_PORT = 8321


class ApiSettings(BaseSettings):
    """The API process. `single_user` lets authors review their own recommendations."""

    model_config = SettingsConfigDict(env_prefix="ROOFTUNE_", frozen=True, extra="ignore")

    database_url: str
    data_dir: Path = DEFAULT_DATA_DIR
    api_port: int = Field(default=DEFAULT_PORT, ge=0, le=65535)
    proxy_url: str = f"http://127.0.0.1:{DEFAULT_PORT + 1}"
    single_user: bool = False
    key_cache_s: float = Field(default=60.0, ge=0)
    upload_max_bytes: int = Field(default=512 * MIB, ge=1)
    upload_max_rows: int = Field(default=500_000, ge=1)
    upload_memory_bytes: int = Field(default=6 * GIB, ge=256 * MIB)
    upload_timeout_s: float = Field(default=600.0, gt=0)
    upload_max_decompressed_bytes: int = Field(default=8 * GIB, ge=1)
    # Uploads that do not say how long they are kept; None: until they are deleted.
    retention_days: int | None = Field(default=None, ge=1)
    retention_poll_s: float = Field(default=60.0, gt=0)
    events_poll_s: float = Field(default=0.5, gt=0)
    events_keepalive_s: float = Field(default=15.0, gt=0)


class UpSettings(BaseSettings):
    """`rooftune up`: one data folder, one port base, an embedded server unless a URL is given."""

    model_config = SettingsConfigDict(
        env_prefix="ROOFTUNE_", frozen=True, extra="ignore", populate_by_name=True
    )

    data_dir: Path = DEFAULT_DATA_DIR
    # The bare name is the one that hosting platforms set.
    database_url: str | None = Field(
        default=None, validation_alias=AliasChoices("ROOFTUNE_DATABASE_URL", "DATABASE_URL")
    )
    port_base: int = Field(default=DEFAULT_PORT, ge=1024, le=65533)
    single_user: bool = True
    engine_python: Path | None = None
    ready_timeout_s: float = Field(default=120.0, gt=0)


class CliSettings(BaseSettings):
    """Where the service is and who asks; options of the command line come first."""

    model_config = SettingsConfigDict(env_prefix="ROOFTUNE_", frozen=True, extra="ignore")

    data_dir: Path = DEFAULT_DATA_DIR
    url: str | None = None
    api_key: str | None = None
    project: str | None = None


def inherited_environment() -> dict[str, str]:
    """The environment that a supervisor hands on to its children."""
    return dict(os.environ)


def child_environment() -> dict[str, str]:
    """The environment of a child that reads uploads: nothing of ours, no database password."""
    return {name: value for name, value in os.environ.items() if not _ours(name)}


def _ours(name: str) -> bool:
    return name.startswith("ROOFTUNE_") or name in {"DATABASE_URL", "PGPASSWORD"}
