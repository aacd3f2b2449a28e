"""Langfuse: traces as its API gives them, and exports of observations (JSON, JSONL, CSV)."""

from collections.abc import Iterable, Mapping, Sequence

from advisor.traffic.formats.answers import Answer, answer_of
from advisor.traffic.formats.asked import Asked, asked_of
from advisor.traffic.formats.decoding import decoded, unwrapped
from advisor.traffic.formats.exchange import SHAPE, Exchange, draft, overlaid
from advisor.traffic.formats.fields import BadField, compact, count, is_nothing
from advisor.traffic.formats.format import Format, Head, Record
from advisor.traffic.formats.lengths_row import failed_draft
from advisor.traffic.formats.pages import page_of
from advisor.traffic.formats.row import Draft, Notes, dumped
from advisor.traffic.formats.times import Time, read_time
from advisor.traffic.formats.timings import between_s, measured

_SIGNS = frozenset(
    {"usagedetails", "completionstarttime", "modelparameters", "parentobservationid", "promptname"}
)
_PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "max_tokens": (
        "max_tokens", "maxTokens", "max_completion_tokens", "max_output_tokens",
        "maxOutputTokens",
    ),
    "temperature": ("temperature",),
    "top_p": ("top_p", "topP"),
    "response_format": ("response_format",),
}  # fmt: skip
_MODELS = ("model", "providedmodelname", "modelname", "internalmodel")


def claims(head: Head) -> bool:
    """A trace with its observations, or rows with the names of observations."""
    if {"trace", "observations"} <= {*head.document, *head.names}:
        return True
    names = frozenset(map(compact, page_of(head, "data").names))
    if "observations" in names and ("projectid" in names or "sessionid" in names):
        return True
    return {"traceid", "type", "starttime"} <= names and not _SIGNS.isdisjoint(names)


def drafts(record: Record, line: int, notes: Notes) -> Iterable[Draft]:
    """The generations of a trace, or the one that a record is; other observations are none."""
    observations = decoded(record.get("observations"))
    if isinstance(observations, list):
        trace = record.get("trace", record)
        session = trace.get("sessionId") if isinstance(trace, Mapping) else None
        for observation in observations:
            if isinstance(observation, Mapping):
                yield from _drafts(observation, session, line, notes)
    else:
        yield from _drafts(record, None, line, notes)


def _drafts(observation: Record, session: object, line: int, notes: Notes) -> Iterable[Draft]:
    row = {compact(name): value for name, value in observation.items() if not is_nothing(value)}
    if str(row.get("type")).upper() != "GENERATION":
        return
    if str(row.get("level")).upper() == "ERROR":
        yield failed_draft(line, "error")
        return
    values = _values(row, session)
    start = read_time("startTime", row.get("starttime"), None)
    end = read_time("endTime", row.get("endtime"), None)
    duration_s = between_s(start, end)
    if duration_s is None:
        duration_s = measured(row.get("latency"), 1, notes, line)
    yield draft(
        Exchange(
            asked=_asked(row, values, notes, line),
            answer=_answer(row),
            values=values,
            time=start,
            duration_s=duration_s,
            ttft_s=_ttft_s(row, start, notes, line),
            lenient=True,
        ),
        line,
        notes,
    )


def _ttft_s(row: Record, start: Time | None, notes: Notes, line: int) -> float | None:
    first = read_time("completionStartTime", row.get("completionstarttime"), None)
    found = between_s(start, first)
    return measured(row.get("timetofirsttoken"), 1, notes, line) if found is None else found


def _object(value: object) -> Mapping[str, object]:
    found = decoded(value)
    return found if isinstance(found, Mapping) else {}


def _values(row: Record, session: object) -> dict[str, object]:
    parameters = _object(row.get("modelparameters"))
    values = overlaid(parameters, _PARAMETERS)
    prompt, output = _usage(row)
    named = {
        "id": row.get("id"),
        "session_id": session or row.get("sessionid") or row.get("traceid"),
        "class": row.get("promptname"),
        "model": next((row[name] for name in _MODELS if row.get(name)), None),
        "prompt_tokens": prompt,
        "output_tokens": output,
    }
    values |= {name: value for name, value in named.items() if value is not None}
    if "response_format" in values:
        values["response_format"] = decoded(values["response_format"])
    return values


def _usage(row: Record) -> tuple[int | None, int | None]:
    """Tokens of prompt and answer; zeros of an observation without usage are no counts.

    The details split a side into parts that add up (`input`, `input_cache_read`, ...).
    """
    usage = _object(row.get("usage"))
    if str(usage.get("unit", row.get("unit", "TOKENS"))).upper() not in {"TOKENS", "NONE"}:
        return None, None
    details = _object(row.get("usagedetails"))
    found = []
    for side, legacy in (("input", "prompttokens"), ("output", "completiontokens")):
        parts = [value for name, value in details.items() if _side(name) == side]
        added = sum(count(side, value) or 0 for value in parts) if parts else None
        known = (row.get(f"{side}usage"), added, usage.get(side), row.get(legacy))
        first = next((value for value in known if value not in (None, 0, "0")), None)
        found.append(count(side, first))
    return found[0], found[1]


def _side(name: str) -> str:
    return name.partition("_")[0]


def _asked(row: Record, values: Mapping[str, object], notes: Notes, line: int) -> Asked:
    """The prompt; instructions and tools may stand with the parameters or in the response."""
    given = decoded(row.get("input"))
    parameters = _object(row.get("modelparameters"))
    response = _object(row.get("output"))
    also: dict[str, object] = {
        "instructions": parameters.get("instructions") or response.get("instructions"),
        "tools": _tools(row, parameters, response),
    }
    try:
        if isinstance(given, Mapping) and "role" not in given:
            asked = asked_of({**{key: value for key, value in also.items() if value}, **given})
        elif isinstance(given, str):
            asked = asked_of({"prompt": given, **also})
        else:
            messages = [given] if isinstance(given, Mapping) else given
            asked = asked_of({"input": messages, **also})
    except BadField:
        asked = Asked()
    known = asked.messages is not None or asked.prompt or asked.prompt_ids
    if given is not None and not known and values.get("prompt_tokens") is not None:
        notes.add(SHAPE, line)
    return asked


def _tools(row: Record, *others: Mapping[str, object]) -> object:
    """Tools from the first place that has some; a mapping of names to JSON counts too."""
    definitions = decoded(row.get("tooldefinitions"))
    if isinstance(definitions, Mapping) and definitions:
        made = (_defined(name, text) for name, text in definitions.items())
        return [tool for tool in made if tool is not None]
    for found in (definitions, *(other.get("tools") for other in others)):
        tools = decoded(found)
        if isinstance(tools, list) and tools:
            return tools
    return None


def _defined(name: str, value: object) -> Mapping[str, object] | None:
    found = decoded(value)
    return {"name": name, **found} if isinstance(found, Mapping) else None


def _answer(row: Record) -> Answer:
    """The answer; JSON that is no response of an API is what the model wrote."""
    written = row.get("output")
    found = decoded(written)
    if found is None or isinstance(found, str):
        return Answer(text=found)
    answer = answer_of(found)
    if answer.text is None and isinstance(found, Mapping) and not _is_message(found):
        return Answer(
            text=unwrapped(written) if isinstance(written, str) else dumped("output", found)
        )
    return Answer(text=answer.text, output_ids=answer.output_ids, prompt_ids=answer.prompt_ids)


def _is_message(value: Mapping[str, object]) -> bool:
    names: Sequence[str] = (
        "role", "content", "choices", "output", "tool_calls", "function_call", "candidates",
        "error", "message", "generations",
    )  # fmt: skip
    return any(name in value for name in names)


LANGFUSE = Format(
    name="langfuse",
    title="Langfuse traces and observations",
    claims=claims,
    drafts=drafts,
    at=("data.item",),
    mapping={
        "messages": "input of a GENERATION: messages of OpenAI, LangChain, Gemini or Responses",
        "prompt": "input, where it is plain text",
        "response": "output",
        "prompt_tokens": "inputUsage, usageDetails.input*, usage.input, promptTokens",
        "output_tokens": "outputUsage, usageDetails.output*, usage.output, completionTokens",
        "timestamp": "startTime",
        "duration_s": "endTime - startTime, latency",
        "ttft_s": "completionStartTime - startTime, timeToFirstToken",
        "session_id": "sessionId of the trace, else traceId",
        "id": "id",
        "class": "promptName",
        "model": "model, providedModelName",
        "tools": "toolDefinitions, modelParameters.tools, input.tools, output.tools",
        "max_tokens": "modelParameters.max_tokens",
        "temperature": "modelParameters.temperature",
        "top_p": "modelParameters.top_p",
        "failed": "level ERROR",
    },
    quirks=(
        "Only observations of type GENERATION are requests; spans, tools and agents are not.",
        "input, output and modelParameters are JSON in strings, at times encoded twice.",
        "Observations come newest first; the requests are sorted by their start.",
        "usageDetails splits a side into parts that add up (input, input_cache_read).",
        "LangChain's handler writes the tools as messages of role tool; they are taken as tools.",
        "Names may be written in camel case (API) or with underscores (blob storage export).",
    ),
)
