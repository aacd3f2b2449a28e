"""What the API sends of measurements that no study made."""

from dataclasses import dataclass
from datetime import datetime

from advisor.estimate import Source
from advisor.measurement.report import MeasurementReport

# Beside the evidence of a study: verdicts stand on its own engine alone.
NOT_USED = "not used for the verdicts"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementView:
    """A result that was sent in; `source` is how far its numbers can be trusted.

    `digest` is the SHA-256 of its file, which is not kept. In lists and beside a recommendation
    the report is without `loads`, the full figures of Rooftune's own client.
    """

    id: str
    target_id: str | None
    digest: str
    source: Source
    report: MeasurementReport
    created_at: datetime
