"""Privacy of uploads: modes, retention, purge; token columns in chunks."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
KEY = ("workload_id", "tokenizer_digest", "template_digest")


def upgrade() -> None:
    """Uploads of before kept all of their text, for ever; their token columns are one chunk."""
    op.add_column("workloads", sa.Column("privacy", sa.Text(), nullable=True))
    op.execute(sa.text("UPDATE workloads SET privacy = 'raw'"))
    op.alter_column("workloads", "privacy", nullable=False)
    for name in ("expires_at", "purged_at"):
        op.add_column("workloads", sa.Column(name, sa.DateTime(timezone=True), nullable=True))
    _token_chunks()
    _purges_and_origins()


def _token_chunks() -> None:
    op.create_table(
        "token_chunks",
        sa.Column("workload_id", sa.Uuid(), nullable=False),
        sa.Column("tokenizer_digest", sa.Text(), nullable=False),
        sa.Column("template_digest", sa.Text(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            KEY,
            [f"token_columns.{name}" for name in KEY],
            name="fk_token_chunks_workload_id_token_columns",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint(*KEY, "seq", name="pk_token_chunks"),
    )
    columns = ", ".join(KEY)
    op.execute(
        sa.text(
            f"INSERT INTO token_chunks ({columns}, seq, body)"  # noqa: S608 - names of ours
            f" SELECT {columns}, 0, body FROM token_columns"
        )
    )
    op.drop_column("token_columns", "body")


def _purges_and_origins() -> None:
    op.create_table(
        "workload_purges",
        sa.Column("workload_id", sa.Uuid(), nullable=False),
        sa.Column("device_id", sa.Uuid(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("removed", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["workload_id"],
            ["workloads.id"],
            name="fk_workload_purges_workload_id_workloads",
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["device_id"], ["devices.id"], name="fk_workload_purges_device_id_devices"
        ),
        sa.PrimaryKeyConstraint("workload_id", "device_id", name="pk_workload_purges"),
    )
    op.create_table(
        "workload_origins",
        sa.Column("workload_id", sa.Uuid(), nullable=False),
        sa.Column("origin_id", sa.Uuid(), nullable=False),
        *(
            sa.ForeignKeyConstraint(
                [name],
                ["workloads.id"],
                name=f"fk_workload_origins_{name}_workloads",
                ondelete="CASCADE",
            )
            for name in ("workload_id", "origin_id")
        ),
        sa.PrimaryKeyConstraint("workload_id", "origin_id", name="pk_workload_origins"),
    )
    op.create_index("ix_workload_origins_origin_id", "workload_origins", ["origin_id"])


def downgrade() -> None:
    """Columns in several chunks, or without any, go: they are computed again when asked for."""
    op.add_column("token_columns", sa.Column("body", sa.LargeBinary(), nullable=True))
    same = " AND ".join(f"token_chunks.{name} = token_columns.{name}" for name in KEY)
    count = f"(SELECT count(*) FROM token_chunks WHERE {same})"  # noqa: S608 - names of ours
    op.execute(sa.text(f"DELETE FROM token_columns WHERE {count} <> 1"))  # noqa: S608
    op.execute(
        sa.text(
            f"UPDATE token_columns SET body = token_chunks.body"  # noqa: S608
            f" FROM token_chunks WHERE {same}"
        )
    )
    op.alter_column("token_columns", "body", nullable=False)
    op.drop_table("workload_origins")
    op.drop_table("workload_purges")
    op.drop_table("token_chunks")
    for name in ("purged_at", "expires_at", "privacy"):
        op.drop_column("workloads", name)
