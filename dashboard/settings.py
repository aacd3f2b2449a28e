"""Settings of the dashboard process, from `ROOFTUNE_*`."""

from pathlib import Path

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict


class DashboardSettings(BaseSettings):
    """Which API to show and who asks; without a key every session is asked for its own."""

    model_config = SettingsConfigDict(env_prefix="ROOFTUNE_", frozen=True, extra="ignore")

    url: str = "http://127.0.0.1:8321"
    api_key: SecretStr | None = None
    key_file: Path | None = None
    project: str | None = None
    dashboard_poll_s: float = Field(default=2.0, gt=0)

    def key(self) -> str | None:
        """The configured key; a key file that cannot be read counts as none."""
        if self.api_key is not None:
            return self.api_key.get_secret_value().strip() or None
        if self.key_file is None:
            return None
        try:
            return self.key_file.read_text(encoding="utf-8").strip() or None
        except OSError:
            return None
