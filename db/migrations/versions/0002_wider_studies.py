"""Wider studies: options, the role of a load point, quality passes."""

import json

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
OLD_KEY = "uq_load_points_trial_id_concurrency_repeat"
NEW_KEY = "uq_load_points_trial_id_role_concurrency_repeat"
# What a study was before it had options: no higher load than its goal's, no confirmation.
BEFORE = {
    "kind": "StudyOptions",
    "schema_version": 1,
    "value": {
        "baseline_command": None,
        "baseline_notes": [],
        "confirm": False,
        "ladder_top": 1,
    },
}


def upgrade() -> None:
    """Rows of before get the options and the role that they had without saying so."""
    op.add_column("studies", sa.Column("options", sa.LargeBinary(), nullable=True))
    body = json.dumps(BEFORE, sort_keys=True, separators=(",", ":")).encode()
    op.execute(sa.text("UPDATE studies SET options = :body").bindparams(body=body))
    op.alter_column("studies", "options", nullable=False)
    op.add_column("trials", sa.Column("quality", sa.LargeBinary(), nullable=True))
    op.add_column("load_points", sa.Column("role", sa.Text(), nullable=True))
    op.execute(sa.text("UPDATE load_points SET role = 'probe'"))
    op.alter_column("load_points", "role", nullable=False)
    op.drop_constraint(OLD_KEY, "load_points")
    op.create_unique_constraint(
        NEW_KEY, "load_points", ["trial_id", "role", "concurrency", "repeat"]
    )


def downgrade() -> None:
    """Points of the new roles have no place in the old schema and go."""
    op.execute(sa.text("DELETE FROM load_points WHERE role <> 'probe'"))
    op.drop_constraint(NEW_KEY, "load_points")
    op.create_unique_constraint(OLD_KEY, "load_points", ["trial_id", "concurrency", "repeat"])
    op.drop_column("load_points", "role")
    op.drop_column("trials", "quality")
    op.drop_column("studies", "options")
