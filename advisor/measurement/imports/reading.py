"""From the bytes of a result file to a report: which tool wrote it is told by what it holds."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

from advisor.errors import InvalidInput
from advisor.measurement.imports import aiperf, guidellm, inference_perf, vllm_bench
from advisor.measurement.imports.fields import REMEDY, Fields
from advisor.measurement.report import MeasurementReport
from advisor.units import MIB

MOST_BYTES = 32 * MIB
FIELD = "file"
SMALLER = "write it again without the single requests (no --save-detailed, no request lists)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool whose results are read: `files` says which of its files and versions.

    `several`: a file may hold more than one object, a line each.
    """

    name: str
    files: str
    recognises: Callable[[Fields], bool]
    read: Callable[[Sequence[Fields]], MeasurementReport]
    several: bool = False


TOOLS = (
    Tool(
        name=vllm_bench.TOOL,
        files="vllm bench serve 0.31 and 0.32 (--save-result, --append-result, --save-detailed)",
        recognises=vllm_bench.recognises,
        read=vllm_bench.read,
        several=True,
    ),
    Tool(
        name=guidellm.TOOL,
        files="GuideLLM 0.8 (benchmarks.json, report version 2)",
        recognises=guidellm.recognises,
        read=guidellm.read,
    ),
    Tool(
        name=aiperf.TOOL,
        files="AIPerf 0.13 (profile_export_aiperf.json, export schema 1)",
        recognises=aiperf.recognises,
        read=aiperf.read,
    ),
    Tool(
        name=aiperf.TOOL,
        files="AIPerf 0.13 (profile_export.jsonl)",
        recognises=aiperf.recognises_record,
        read=aiperf.read_records,
        several=True,
    ),
    Tool(
        name=inference_perf.TOOL,
        files="inference-perf 0.7 (stage_*_lifecycle_metrics.json, summary_lifecycle_metrics.json)",
        recognises=inference_perf.recognises,
        read=inference_perf.read,
    ),
)
KNOWN = "; ".join(tool.files for tool in TOOLS)


def read_result(body: bytes) -> MeasurementReport:
    """What a result file of another tool says, as evidence of the lowest rank.

    Raises `InvalidInput` naming the field, in its own words: nothing of the file is quoted, and
    nothing but figures, names and versions is kept.
    """
    return read_documents(documents_of(body))


def read_documents(documents: Sequence[Fields]) -> MeasurementReport:
    """What the objects of a result file say together."""
    for tool in TOOLS:
        if all(tool.recognises(document) for document in documents):
            if len(documents) > 1 and not tool.several:
                raise InvalidInput(FIELD, f"holds {len(documents)} results; send each by itself")
            return tool.read(documents)
    raise InvalidInput(FIELD, f"is the result of no tool that is known; known: {KNOWN}")


def documents_of(body: bytes) -> tuple[Fields, ...]:
    """The JSON objects of a file: one, or one a line. NaN and infinity are refused."""
    if len(body) > MOST_BYTES:
        raise InvalidInput(FIELD, f"is larger than {MOST_BYTES // MIB} MiB; {SMALLER}")
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidInput(FIELD, f"is not UTF-8 text; {REMEDY}") from None
    whole = _parsed(text)
    found = [whole] if whole is not None else [_parsed(line) for line in _lines(text)]
    if not found:
        raise InvalidInput(FIELD, f"is empty; {REMEDY}")
    return tuple(_fields(value, place, len(found)) for place, value in enumerate(found))


def _lines(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.strip()]


def _fields(value: object, place: int, count: int) -> Fields:
    where = FIELD if count == 1 else f"line {place + 1}"
    if not isinstance(value, dict):
        raise InvalidInput(where, f"is not a JSON object; known: {KNOWN}")
    return Fields(held=value, path="" if count == 1 else where)


def _parsed(text: str) -> object:
    """The value of a JSON text, None where it is none."""
    try:
        return json.loads(text, parse_constant=_refused, parse_float=_finite)
    except InvalidInput:
        raise
    except RecursionError:
        raise InvalidInput(FIELD, f"is nested too deep; {REMEDY}") from None
    except ValueError:
        return None


def _refused(name: str) -> NoReturn:
    raise InvalidInput(FIELD, f"holds {name}, which no measurement is; {REMEDY}")


def _finite(digits: str) -> float:
    number = float(digits)
    return number if math.isfinite(number) else _refused("a number beyond all bounds")
