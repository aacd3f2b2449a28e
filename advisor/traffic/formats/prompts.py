"""Task sets: questions without times, one request per row."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from advisor.traffic.formats.answers import Answer
from advisor.traffic.formats.asked import Asked, asked_of, tools_of
from advisor.traffic.formats.chat_jsonl import time_of
from advisor.traffic.formats.decoding import decoded
from advisor.traffic.formats.exchange import Exchange, draft
from advisor.traffic.formats.fields import BadField, text
from advisor.traffic.formats.format import Format, Head, Record
from advisor.traffic.formats.row import Draft, Notes
from advisor.traffic.formats.turns import Turns

_MORE = "ask further turns, which depend on the model's answers: only the first is a request"
_REFERENCE = "have a reference solution, which no model wrote: it is not taken as the answer"
_ANSWER = "have an answer beside their question: a reference answer is not what a model writes"
_NOT_HERE = frozenset({"messages", "conversations", "input_tokens", "prompt_tokens", "traceId"})
_IDS = ("question_id", "task_id", "id")
_CLASSES = ("category", "class", "label")


# What a row asks, and what is odd about it.
Read: TypeAlias = tuple[Exchange, str | None]


class Task(NamedTuple):
    """A shape of rows: the names that tell it, and how a row is read."""

    names: frozenset[str]
    read: Callable[[Record], Read]


def _turns(row: Record) -> Read:
    """MT-Bench, Spec-Bench: `turns` are the questions of one user."""
    turns = decoded(row["turns"])
    if not isinstance(turns, Sequence) or isinstance(turns, str) or not turns:
        raise BadField("turns", "not a list with at least one question")
    question = text("turns", turns[0])
    asked = _chat([{"role": "user", "content": question}])
    return Exchange(asked=asked), _MORE if len(turns) > 1 else None


def _solution(row: Record) -> Read:
    """HumanEval, MBPP: a prompt to complete and somebody's solution."""
    return Exchange(asked=Asked(prompt=text("prompt", row["prompt"]))), _REFERENCE


def _functions(row: Record) -> Read:
    """BFCL: `question` is a list of turns, each a list of messages; `function` holds the tools."""
    question = decoded(row["question"])
    turns = question if isinstance(question, list) else []
    if turns and isinstance(turns[0], Mapping):
        turns = [turns]
    if not turns or not isinstance(turns[0], list) or not turns[0]:
        raise BadField("question", "not a list of turns")
    functions = decoded(row.get("function"))
    tools = tools_of([functions] if isinstance(functions, Mapping) else functions)
    asked = _chat(turns[0])
    asked = Asked(messages=asked.messages, images=asked.images, tools=tools)
    return Exchange(asked=asked), _MORE if len(turns) > 1 else None


def _question(row: Record) -> Read:
    """GSM8K and lists of questions with answers."""
    question = decoded(row["question"])
    if isinstance(question, list):
        return Exchange(asked=asked_of(question)), None
    content = text("question", question)
    if not content:
        raise BadField("question", "empty")
    answer = row.get("answer")
    found = Exchange(
        asked=_chat([{"role": "user", "content": content}]),
        answer=Answer(text=answer if isinstance(answer, str) else None),
    )
    return found, _ANSWER if answer is not None else None


def _instruction(row: Record) -> Read:
    """Alpaca, Dolly: an instruction, what it is about, and an answer."""
    parts = (row["instruction"], row.get("input") or row.get("context"))
    known = [part for part in (text("instruction", part) for part in parts) if part]
    if not known:
        raise BadField("instruction", "empty")
    found = Exchange(
        asked=_chat([{"role": "user", "content": "\n\n".join(known)}]),
        answer=Answer(text=text("output", row.get("output", row.get("response")))),
    )
    return found, None


def _chat(messages: Sequence[object]) -> Asked:
    made = Turns()
    made.extend(messages)
    return Asked(messages=made.messages, images=made.images)


_TASKS = (
    Task(frozenset({"turns"}), _turns),
    Task(frozenset({"prompt", "canonical_solution"}), _solution),
    Task(frozenset({"question", "function"}), _functions),
    Task(frozenset({"question", "initial_config"}), _functions),
    Task(frozenset({"instruction", "output"}), _instruction),
    Task(frozenset({"instruction", "context", "response"}), _instruction),
    Task(frozenset({"question", "answer"}), _question),
    Task(frozenset({"question"}), _question),
)


def claims(head: Head) -> bool:
    """Rows that have the names of a known task set and none of a log."""
    names = frozenset(head.names)
    return _NOT_HERE.isdisjoint(names) and any(task.names <= names for task in _TASKS)


def drafts(row: Record, line: int, notes: Notes) -> Iterable[Draft]:
    """One request per row."""
    task = next((task for task in _TASKS if task.names <= row.keys()), None)
    if task is None:
        raise BadField("question", "neither a question, turns, an instruction nor a prompt")
    found, oddity = task.read(row)
    if oddity is not None:
        notes.add(oddity, line)
    tags = {"id": _first(row, _IDS), "class": _first(row, _CLASSES)}
    found.values = {name: value for name, value in tags.items() if value is not None}
    found.time = time_of(row)
    yield draft(found, line, notes)


def _first(row: Record, names: Sequence[str]) -> object:
    return next((row[name] for name in names if row.get(name) is not None), None)


PROMPTS = Format(
    name="prompts",
    title="Task sets (questions without times)",
    claims=claims,
    drafts=drafts,
    mapping={
        "messages": "the first of turns, question, or instruction with input or context",
        "prompt": "prompt (beside canonical_solution)",
        "response": "answer, output",
        "tools": "function",
        "id": "question_id, task_id, id",
        "class": "category",
        "timestamp": "timestamp, where a list of questions has one",
    },
    quirks=(
        "One request per row: further turns need the model's own answers, so they are left out.",
        "A canonical_solution is nobody's recorded answer and is not read.",
        "Nothing says when requests come: arrivals and burstiness are not measurable.",
    ),
)
