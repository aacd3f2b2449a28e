"""Settings of the agent process: read once from the environment, handed down from `__main__`."""

import os
import socket
from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

CHECKOUT = Path(__file__).resolve().parent.parent


class AgentSettings(BaseSettings):
    """One agent looks after one device. Every field is an environment variable `ROOFTUNE_<FIELD>`.

    Times end in `_s` (seconds); `start_timeout_s` None grows with the model's size. An engine that
    has requests and makes no step for `hang_s` is ended; a study of an agent that was not seen for
    `takeover_s` goes to another one of the same device class.
    `output_token_cap` limits the outputs of every load but that of static batching, which is about
    their different lengths and has `static_output_cap`.
    `model_roots` is a colon-separated allow-list of folders. `more_engines` are interpreters of
    further engines beside `engine_python`, which is the one that a target gets by default.
    `service_pid` is the supervisor: processes below it are ours and no neighbours of a load point;
    `check_neighbours` off accepts load points whatever else the machine does.
    """

    model_config = SettingsConfigDict(env_prefix="ROOFTUNE_", frozen=True, extra="ignore")

    database_url: str
    data_dir: Path = Path(".rooftune")
    engine_python: Path = Path(".venv-engine/bin/python")
    more_engines: str = ""
    engine_launcher: Path | None = None
    quantizer_python: Path = CHECKOUT / ".venv-quantizer" / "bin" / "python"
    host_name: str = Field(default_factory=socket.gethostname)
    device_name: str = "cpu0"
    device_kind: str = Field(default="cpu", pattern="^(cpu|cuda)$")
    device_class: str | None = None
    engine_threads: int | None = Field(default=None, ge=1)
    model_roots: str = ""
    demo_model_dir: Path | None = None
    start_timeout_s: float | None = Field(default=None, gt=0)
    stop_grace_s: float = Field(default=10.0, gt=0)
    hang_s: float = Field(default=300.0, gt=0)
    takeover_s: float = Field(default=120.0, gt=0)
    poll_s: float = Field(default=2.0, gt=0)
    lease_ttl_s: float = Field(default=30.0, gt=0)
    microbench_s: float = Field(default=6.0, gt=0)
    facts_max_age_s: float = Field(default=86_400.0, gt=0)
    output_token_cap: int = Field(default=160, ge=1)
    static_output_cap: int = Field(default=160, ge=1)
    default_output_tokens: int = Field(default=64, ge=1)
    mean_prompt_limit: float | None = Field(default=None, gt=0)
    check_neighbours: bool = True
    service_pid: int | None = None
    restart_backoff_s: float = Field(default=1.0, gt=0)
    max_restarts: int = Field(default=5, ge=0)
    log_limit_bytes: int = Field(default=4 << 20, ge=1024)

    @property
    def allowed_roots(self) -> tuple[Path, ...]:
        """The folders of `model_roots` whose models may be served, with links resolved."""
        return tuple(Path(root).resolve() for root in self.model_roots.split(":") if root)

    @property
    def further_interpreters(self) -> tuple[Path, ...]:
        """Interpreters of `more_engines`, a colon-separated list; links are kept."""
        return tuple(Path(path).absolute() for path in self.more_engines.split(":") if path)

    @property
    def demo_model(self) -> Path:
        """Where the demo model is built."""
        return (self.demo_model_dir or self.data_dir / "models" / "demo").absolute()


def engine_environment() -> dict[str, str]:
    """The agent's environment without what an engine must not see: the database's password.

    Nor may it be told to write no bytecode: an engine imports thousands of modules in three
    processes, and compiling them anew at every start takes longer than loading the model.
    """
    unwanted = ("DATABASE_URL", "PASSWORD", "_KEY", "_SECRET", "PYTHONDONTWRITEBYTECODE")
    return {name: value for name, value in os.environ.items() if not name.endswith(unwanted)}
