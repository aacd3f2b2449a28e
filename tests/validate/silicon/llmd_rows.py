"""llm-d's aggregated rows as series: Llama-3.1-70B in 16 bit on H100, replicas behind a router.

R replicas share the concurrency evenly; what a router does unevenly is left out. Lengths are equal
(9,999 in, 1,000 out), and requests times their latency is the concurrency to 2 %: the ends of the
test hardly count.
"""

import csv
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from tests.validate.silicon.rows import Row, Series

LLMD_FILE = "e2e_serving_llmd_pd_llama70b_h100.csv"
REQUESTS_EACH = 20


def read_llmd(path: Path) -> Mapping[Series, tuple[Row, ...]]:
    """Rows of replicas without disaggregation, one series per number of ranks."""
    found: dict[Series, list[Row]] = defaultdict(list)
    with path.open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            if row["architecture"] == "aggregated":
                series = Series(
                    model="meta-llama/Llama-3.1-70B",
                    card="h100-sxm",
                    precision="",
                    ranks=int(row["tp"]),
                    expert_ranks=1,
                )
                found[series].append(_row(row))
    return {
        series: tuple(sorted(rows, key=lambda row: (row.concurrency, row.identity)))
        for series, rows in sorted(found.items(), key=lambda item: item[0].ranks)
    }


def _row(row: Mapping[str, str]) -> Row:
    return Row(
        prompt_tokens=int(row["input_tokens"]),
        output_tokens=int(row["output_tokens"]),
        concurrency=max(1, round(int(row["concurrency"]) / int(row["replicas"]))),
        ttft_s=float(row["mean_ttft_ms"]) / 1e3,
        tpot_s=float(row["mean_tpot_ms"]) / 1e3,
        identity=row["run_id"],
    )
