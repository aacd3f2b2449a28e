"""Measurements that were not made by a study: from outside, or another tool's."""

from datetime import datetime

from sqlalchemy import ForeignKey, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from advisor.measurement.report import MeasurementReport
from db.base import Base
from db.identity_tables import Id
from db.stored import Stored


class MeasurementRow(Base):
    """Figures of one result file; the file itself is not kept. `digest` is the file's SHA-256."""

    __tablename__ = "measurements"
    __table_args__ = (UniqueConstraint("project_id", "digest"),)

    id: Mapped[Id] = mapped_column(primary_key=True)
    project_id: Mapped[Id] = mapped_column(ForeignKey("projects.id"), index=True)
    target_id: Mapped[Id | None] = mapped_column(ForeignKey("targets.id"), index=True)
    rank: Mapped[str]
    tool: Mapped[str]
    digest: Mapped[str]
    report: Mapped[MeasurementReport] = mapped_column(Stored(MeasurementReport))
    created_by: Mapped[Id] = mapped_column(ForeignKey("users.id"))
    created_at: Mapped[datetime]
