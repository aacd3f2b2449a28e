"""Measurements from outside a study."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """None was kept before."""
    op.create_table(
        "measurements",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.Column("target_id", sa.Uuid(), nullable=True),
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("rank", "tool", "digest")),
        sa.Column("report", sa.LargeBinary(), nullable=False),
        sa.Column("created_by", sa.Uuid(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        *(
            sa.ForeignKeyConstraint(
                [column], [f"{table}.id"], name=f"fk_measurements_{column}_{table}"
            )
            for column, table in (
                ("project_id", "projects"),
                ("target_id", "targets"),
                ("created_by", "users"),
            )
        ),
        sa.PrimaryKeyConstraint("id", name="pk_measurements"),
        sa.UniqueConstraint("project_id", "digest", name="uq_measurements_project_id_digest"),
    )
    for column in ("project_id", "target_id"):
        op.create_index(f"ix_measurements_{column}", "measurements", [column])


def downgrade() -> None:
    """The figures go; the files that they were read from are with whoever sent them."""
    op.drop_table("measurements")
