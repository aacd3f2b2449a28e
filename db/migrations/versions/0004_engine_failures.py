"""What engines failed at is remembered."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
PLACE = ("engine_version", "engine_build", "device_class", "model_digest")


def upgrade() -> None:
    """An empty memory: failures of before were not kept in a form that could be compared."""
    op.create_table(
        "engine_failures",
        sa.Column("id", sa.Uuid(), nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in (*PLACE, "kind", "detail")),
        *(
            sa.Column(name, sa.Text(), nullable=True)
            for name in ("config_hash", "setting", "setting_value")
        ),
        sa.Column("bound", sa.BigInteger(), nullable=True),
        sa.Column("failed_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_engine_failures"),
    )
    op.create_index("ix_engine_failures_place", "engine_failures", list(PLACE))


def downgrade() -> None:
    """Every failure is met once more."""
    op.drop_table("engine_failures")
