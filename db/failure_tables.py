"""What engines failed at, kept so that it is not tried again (docs/adr/0024)."""

from datetime import datetime

from sqlalchemy import BigInteger, Index
from sqlalchemy.orm import Mapped, mapped_column

from db.base import Base
from db.identity_tables import Id


class EngineFailureRow(Base):
    """A failure that another start would meet again, on this engine, device class and model.

    `config_hash` is that of the whole configuration, or of the configuration without `setting`
    where one setting is at fault: with a `bound` that setting worked at most up to it; with a
    `setting_value` and no hash, that value fails whatever the other settings are.
    """

    __tablename__ = "engine_failures"
    __table_args__ = (
        Index(
            "ix_engine_failures_place",
            "engine_version",
            "engine_build",
            "device_class",
            "model_digest",
        ),
    )

    id: Mapped[Id] = mapped_column(primary_key=True)
    engine_version: Mapped[str]
    engine_build: Mapped[str]
    device_class: Mapped[str]
    model_digest: Mapped[str]
    config_hash: Mapped[str | None]
    setting: Mapped[str | None]
    setting_value: Mapped[str | None]
    bound: Mapped[int | None] = mapped_column(BigInteger)
    kind: Mapped[str]
    detail: Mapped[str]
    failed_at: Mapped[datetime]
