"""Makes the sample traffic: `python -m samples.generate --write` or `--check`.

Five classes over about two hours with a bursty second hour, from a fixed seed. `--write` makes the
prompts anew and keeps recorded answers of prompts that did not change; `--check` says whether the
committed file has exactly these prompts. `samples.record` fills in the answers.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from samples import phrases

TRAFFIC = Path(__file__).parent / "traffic.jsonl"
SEED = 20261102
START_S = 1_793_610_000  # Monday, 2 November 2026, 09:00 UTC
HOUR_S = 3600.0
COUNTS = {"extraction": 46, "code_edit": 46, "summary": 44, "prose": 46}
SINGLE_SUPPORT = 38
SESSIONS = 8
TURNS = 3
RECORDED = ("response", "usage")

Message = dict[str, str]
Row = dict[str, object]


@dataclass(slots=True)
class Asked:
    """One request before it has a time: its class, messages and limit on output."""

    label: str
    messages: list[Message]
    max_tokens: int
    session: str | None = None
    after_s: float = 0.0
    extra: dict[str, object] = field(default_factory=dict)


class Writer:
    """Draws requests of the five classes from one random generator."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def one(self, choices: tuple[str, ...]) -> str:
        """One of the choices."""
        return choices[int(self.rng.integers(len(choices)))]

    def some(self, choices: tuple[str, ...], count: int) -> list[str]:
        """`count` different choices in their order."""
        places = sorted(self.rng.permutation(len(choices))[:count])
        return [choices[int(place)] for place in places]

    def number(self, low: int, high: int) -> int:
        """A whole number from low to high, both included."""
        return int(self.rng.integers(low, high + 1))

    def size(self, place: int) -> str:
        """Every tenth request of a class is long, one more in five is middling, the rest short."""
        return {0: "long", 3: "middle", 6: "middle"}.get(place % 10, "short")

    def support(self, place: int) -> Asked:
        """A question of a customer under the shop's rules."""
        question, _ = phrases.SUPPORT_QUESTIONS[place % len(phrases.SUPPORT_QUESTIONS)]
        size = self.size(place)
        tail = {
            "short": " Please answer in one sentence.",
            "middle": " Please explain it in a few sentences.",
            "long": " Please also list all rules about returns and warranty that I should know.",
        }[size]
        limit = {"short": self.number(24, 48), "middle": 80, "long": self.number(180, 220)}[size]
        return Asked(
            "support", [*rules(), user(self.one(phrases.OPENINGS) + question + tail)], limit
        )

    def session(self, place: int) -> Iterator[Asked]:
        """Turns of one customer; each resends what was said before."""
        history: list[Message] = rules()
        after_s = 0.0
        for turn in range(TURNS):
            at = (place * TURNS + turn * 5) % len(phrases.SUPPORT_QUESTIONS)
            question, answer = phrases.SUPPORT_QUESTIONS[at]
            history = [*history, user(self.one(phrases.OPENINGS) + question)]
            limit = self.number(24, 56)
            yield Asked("support", history, limit, session=f"visit-{place + 1}", after_s=after_s)
            history = [*history, {"role": "assistant", "content": answer}]
            after_s += self.number(35, 140)

    def record(self) -> tuple[str, str]:
        """A line about an order and the JSON object that it stands for."""
        name = f"{self.one(phrases.FIRST_NAMES)} {self.one(phrases.LAST_NAMES)}"
        town, item, colour = (
            self.one(phrases.TOWNS),
            self.one(phrases.GOODS),
            self.one(phrases.COLOURS),
        )
        amount, order = self.number(2, 9), self.number(10_000, 99_999)
        line = (
            f"{name} from {town} ordered {amount} pieces of {colour} {item}, order number {order}."
        )
        value = {
            "name": name,
            "town": town,
            "item": f"{colour} {item}",
            "amount": amount,
            "order": order,
        }
        return line, json.dumps(value)

    def extraction(self, place: int) -> Asked:
        """Records as text; wanted is JSON, after one example."""
        size = self.size(place)
        wanted = {"short": 1, "middle": 2, "long": self.number(4, 5)}[size]
        line, value = self.record()
        lines = [self.record()[0] for _ in range(wanted)]
        examples = "\n".join(
            f"Text: {one}\nJSON: {other}" for one, other in [(line, value), self.record()]
        )
        text = (
            "Turn each text into one line of JSON with the keys name, town, item, amount and order."
            f" Copy the values exactly.\n\n{examples}\n\nNow do the same for:\n"
            + "\n".join(f"Text: {one}" for one in lines)
            + "\nAnswer with the JSON only."
        )
        return Asked("extraction", [user(text)], {"short": 56, "middle": 112, "long": 260}[size])

    def module(self, functions: int) -> str:
        """Some functions with names and numbers filled in."""
        return "\n\n".join(
            template.format(
                name=self.one(phrases.CODE_NAMES),
                field=self.one(phrases.CODE_FIELDS),
                digits=self.number(1, 4),
                limit=self.number(3, 40),
            )
            for template in self.some(phrases.FUNCTIONS, functions)
        )

    def code_edit(self, place: int) -> Asked:
        """Code to be given back with one small change."""
        size = self.size(place)
        code = self.module({"short": 2, "middle": 3, "long": 4}[size])
        old = code.split("(")[0].removeprefix("def ")
        text = (
            f"Here is a Python file:\n```python\n{code}```\n"
            f"Rename the function `{old}` to `{old}_v{self.number(2, 9)}` and change nothing else."
            " Write the complete file again, without any explanation."
        )
        limit = {"short": self.number(24, 60), "middle": 96, "long": self.number(220, 260)}[size]
        return Asked("code_edit", [user(text)], limit)

    def summary(self, place: int) -> Asked:
        """A passage of facts to be shortened."""
        size = self.size(place)
        passage = " ".join(self.some(phrases.FACTS, self.number(6, 9))).format(
            place=self.one(phrases.PLACES),
            year=self.number(1790, 1890),
            height=self.number(20, 70),
            miles=self.number(9, 24),
            decades=self.number(4, 9),
            year2=self.number(1900, 1960),
            people=self.number(200, 4000),
            birds=self.number(40, 160),
            path=self.number(2, 9),
        )
        wish, limit = {
            "short": ("Summarise the text in one short sentence.", self.number(24, 48)),
            "middle": ("Summarise the text in three sentences.", 90),
            "long": ("Summarise the text in detail, point by point.", self.number(180, 220)),
        }[size]
        return Asked("summary", [user(f"{passage}\n\n{wish}")], limit)

    def prose(self, place: int) -> Asked:
        """Creative writing: nothing in the brief is worth copying."""
        wishes = " ".join(self.some(phrases.WISHES, self.number(10, 13)))
        text = (
            f"Write {self.one(phrases.FORMS)} about {self.one(phrases.HEROES)}"
            f" {self.one(phrases.SCENES)} who finds {self.one(phrases.FINDS)}. {wishes}"
            f" The mood is {self.one(phrases.MOODS)}. Begin directly with the text."
        )
        limit = {0: self.number(120, 150), 5: 64}.get(place % 13, self.number(18, 44))
        return Asked("prose", [user(text)], limit)


def rules() -> list[Message]:
    """The shop's rules as a system message."""
    return [{"role": "system", "content": phrases.SHOP_RULES}]


def user(text: str) -> Message:
    """A message of the user."""
    return {"role": "user", "content": text}


def arrival_times(rng: np.random.Generator, count: int) -> list[float]:
    """A quiet hour with a third of the requests, then an hour of bursts."""
    quiet = count // 3
    times = list(rng.uniform(0, HOUR_S, quiet))
    while len(times) < count:
        start = HOUR_S + rng.uniform(0, HOUR_S * 0.97)
        burst = min(int(rng.integers(5, 15)), count - len(times))
        times += list(start + np.cumsum(rng.exponential(2.5, burst)))
    return sorted(float(time) for time in times)


def make_rows(seed: int = SEED) -> list[Row]:
    """All requests in order of arrival, without recorded answers."""
    rng = np.random.default_rng(seed)
    writer = Writer(rng)
    makers = {
        "extraction": writer.extraction,
        "code_edit": writer.code_edit,
        "summary": writer.summary,
        "prose": writer.prose,
    }
    alone = [writer.support(place) for place in range(SINGLE_SUPPORT)]
    alone += [makers[label](place) for label, count in COUNTS.items() for place in range(count)]
    visits = [list(writer.session(place)) for place in range(SESSIONS)]
    groups = [[asked] for asked in alone] + visits
    times = arrival_times(rng, len(groups))
    order = rng.permutation(len(groups))
    timed = [
        (time + asked.after_s, asked)
        for time, place in zip(times, order, strict=True)
        for asked in groups[int(place)]
    ]
    timed.sort(key=lambda pair: pair[0])
    return [_row(number, time, asked) for number, (time, asked) in enumerate(timed, start=1)]


def _row(number: int, time_s: float, asked: Asked) -> Row:
    row: Row = {"id": f"sample-{number:03d}", "class": asked.label}
    if asked.session is not None:
        row["session_id"] = asked.session
    return row | {
        "timestamp": round(START_S + time_s, 3),
        "messages": asked.messages,
        "max_tokens": asked.max_tokens,
        "temperature": 0,
    }


def committed_rows(path: Path = TRAFFIC) -> list[Row]:
    """Rows of the committed file, with their recorded answers."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def without_answers(rows: list[Row]) -> list[Row]:
    """Rows as the generator makes them."""
    return [{key: row[key] for key in row if key not in RECORDED} for row in rows]


def write_rows(rows: list[Row], path: Path = TRAFFIC) -> None:
    """One JSON object per line, UTF-8."""
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    path.write_text("".join(lines), encoding="utf-8")


def merged(rows: list[Row], known: list[Row]) -> list[Row]:
    """Fresh rows with the recorded answers of equal prompts and limits."""
    answers = {_identity(row): row for row in known}
    found = []
    for row in rows:
        old = answers.get(_identity(row), {})
        found.append(row | {key: old[key] for key in RECORDED if key in old})
    return found


def _identity(row: Row) -> str:
    return json.dumps([row["messages"], row["max_tokens"]])


def main(argv: list[str] | None = None) -> int:
    """Exit status 0 when written, or when the committed prompts are the generated ones."""
    parser = argparse.ArgumentParser(prog="python -m samples.generate", description=__doc__)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", action="store_true", help="write samples/traffic.jsonl")
    action.add_argument("--check", action="store_true", help="compare with samples/traffic.jsonl")
    options = parser.parse_args(argv)
    rows = make_rows()
    known = committed_rows() if TRAFFIC.exists() else []
    if options.write:
        write_rows(merged(rows, known))
        return 0
    same = without_answers(known) == rows
    sys.stdout.write(f"{len(rows)} prompts: {'unchanged' if same else 'differ from the file'}\n")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
