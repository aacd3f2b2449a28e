"""Results of `vllm bench serve --save-detailed`: one document with an array per measured thing."""

from collections.abc import Iterable, Iterator, Mapping

from advisor.traffic.formats.fields import BadField, count, tag
from advisor.traffic.formats.format import Format, Framing, Head, Record
from advisor.traffic.formats.lengths_row import failed_draft, lengths_draft, set_timings
from advisor.traffic.formats.row import Draft, Notes, RequestFields
from advisor.traffic.formats.times import Time, read_time
from advisor.traffic.formats.timings import measured

ARRAYS = ("input_lens", "output_lens")
NO_ANSWER = "no answer"
_ERROR = "error"
_LEFT_OUT = "hold a request whose lengths or times are none: it was left out"


def claims(head: Head) -> bool:
    """An object with the arrays `input_lens` and `output_lens`."""
    names = {*head.document, *head.names}
    return head.framing in (Framing.JSON, Framing.JSONL) and names.issuperset(ARRAYS)


def drafts(record: Record, line: int, notes: Notes) -> Iterable[Draft]:
    """One run, as many requests as its arrays are long, numbered on from `line`."""
    inputs, outputs = (_array(record, name) for name in ARRAYS)
    if inputs is None or outputs is None:
        raise BadField("input_lens, output_lens", "not two lists")
    columns = {
        name: found
        for name in ("ttfts", "itls", "latencies", "start_times", "errors")
        if (found := _array(record, name)) is not None
    }
    sizes = {len(column) for column in (inputs, outputs, *columns.values())}
    if len(sizes) > 1:
        raise BadField("input_lens, output_lens", "its arrays are not of one length")
    return _requests(record, {"input": inputs, "output": outputs, **columns}, line, notes)


def _array(record: Record, name: str) -> list[object] | None:
    found = record.get(name)
    return found if isinstance(found, list) else None


def _requests(
    record: Record, columns: Mapping[str, list[object]], line: int, notes: Notes
) -> Iterator[Draft]:
    model = tag("model_id", record.get("model_id"))
    for place in range(len(columns["input"])):
        row = {name: column[place] for name, column in columns.items()}
        try:
            yield _request(row, model, line + place, notes)
        except BadField:
            notes.add(_LEFT_OUT, line + place)


def _request(row: Record, model: str | None, line: int, notes: Notes) -> Draft:
    if row.get("errors"):
        return failed_draft(line, _ERROR)
    fields: RequestFields = {
        "prompt_tokens": count("input_lens", row["input"]),
        "output_tokens": count("output_lens", row["output"]),
        "model": model,
    }
    # The tool counts a request whose stream ended before a first token as a success.
    if not fields["output_tokens"] and not row.get("ttfts"):
        return failed_draft(line, NO_ANSWER)
    set_timings(fields, _timings(row, notes, line))
    return lengths_draft(line, _start(row), fields, notes, field="input_lens")


def _start(row: Record) -> Time | None:
    """The tool's own clock, seconds from no known moment."""
    return read_time("start_times", row.get("start_times"), "s")


def _timings(row: Record, notes: Notes, line: int) -> dict[str, float]:
    found: dict[str, float] = {}
    ttft_s = measured(row.get("ttfts"), 1, notes, line)
    if ttft_s:
        found["ttft_s"] = ttft_s
    duration_s = measured(row.get("latencies"), 1, notes, line)
    gaps = row.get("itls")
    if duration_s is None and ttft_s and isinstance(gaps, list):
        duration_s = ttft_s + sum(measured(gap, 1, notes, line) or 0.0 for gap in gaps)
    if duration_s is not None:
        found["duration_s"] = duration_s
    return found


VLLM_BENCH = Format(
    name="vllm_bench",
    title="Result of `vllm bench serve --save-detailed` (and of SGLang's `bench_serving`)",
    claims=claims,
    drafts=drafts,
    mapping={
        "prompt_tokens": "input_lens[i]",
        "output_tokens": "output_lens[i]",
        "timestamp": "start_times[i] (seconds of the tool's clock; older versions have none)",
        "ttft_s": "ttfts[i]",
        "duration_s": "latencies[i], else ttfts[i] + sum(itls[i])",
        "model": "model_id",
        "failed": "errors[i], and no first token",
    },
    quirks=(
        "One document holds all requests: the number of a row is the place in its arrays.",
        "A stream that ended before its first token counts as failed, although the tool does not.",
        "`generated_texts` is not read: the prompts that it answers are not in the file.",
    ),
)
