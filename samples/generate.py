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
COUNTS = {"support": 38, "extraction": 46, "code_edit": 46, "summary": 44}
# Numbers of briefs, with their output limits, at which the demo model does not repeat itself: at
# temperature 0 small models loop, and a loop would be accepted as a draft.
PROSE_PICKS = (
    (0, 112),
    (1, 44),
    (2, 18),
    (5, 30),
    (7, 22),
    (9, 36),
    (10, 26),
    (12, 20),
    (13, 18),
    (16, 24),
    (17, 28),
    (18, 118),
    (20, 34),
    (21, 124),
    (22, 44),
    (23, 130),
    (24, 18),
    (25, 30),
    (26, 18),
    (27, 36),
    (28, 26),
    (29, 20),
    (30, 22),
    (31, 24),
    (32, 28),
    (33, 34),
    (34, 44),
    (35, 18),
    (36, 30),
    (37, 22),
    (38, 22),
    (39, 26),
    (41, 20),
    (43, 18),
    (45, 24),
    (46, 28),
    (47, 18),
    (48, 22),
    (50, 18),
    (51, 30),
    (52, 22),
    (54, 36),
    (55, 26),
    (56, 20),
    (58, 22),
    (60, 24),
)
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

    def record(self) -> dict[str, str | int]:
        """An order of the invented shop with all its fields."""
        return {
            "name": f"{self.one(phrases.FIRST_NAMES)} {self.one(phrases.LAST_NAMES)}",
            "street": f"{self.one(phrases.STREETS)} {self.number(1, 90)}",
            "town": self.one(phrases.TOWNS),
            "item": self.one(phrases.GOODS),
            "colour": self.one(phrases.COLOURS),
            "amount": self.number(2, 9),
            "order": self.number(10_000, 99_999),
            "weight_kg": self.number(2, 60),
            "price": self.number(12, 480),
            "day": self.one(phrases.DAYS),
            "carrier": self.one(phrases.CARRIERS),
            "note": self.one(phrases.NOTES),
        }

    def extraction(self, place: int) -> Asked:
        """A record as text; wanted are some of its fields as JSON, after one example."""
        size = self.size(place)
        wanted = {"short": 2, "middle": 4, "long": 12}[size]
        first, second = self.record(), self.record()
        keys = self.some(tuple(first), wanted)
        ask = f"Give me {', '.join(keys)} of this order as one line of JSON:\n"
        return Asked(
            "extraction",
            [
                user(ask + _sentence(first)),
                {"role": "assistant", "content": json.dumps({key: first[key] for key in keys})},
                user(ask + _sentence(second)),
            ],
            {"short": 48, "middle": 96, "long": 200}[size],
        )

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

    def rename(self, functions: int) -> tuple[str, str]:
        """A wish to rename the first function of some code, and the code after it."""
        code = self.module(functions)
        old = code.split("(")[0].removeprefix("def ")
        new = f"{old}_v{self.number(2, 9)}"
        ask = f"Rename `{old}` to `{new}` in this code and change nothing else:\n"
        return f"{ask}```python\n{code}```", f"```python\n{code.replace(old, new)}```"

    def code_edit(self, place: int) -> Asked:
        """Code to be given back with one small change, after one example."""
        size = self.size(place)
        functions = {"short": 1, "middle": 2, "long": 4}[size]
        example, answer = self.rename(max(1, functions // 2))
        text, _ = self.rename(functions)
        limit = {"short": self.number(22, 50), "middle": 90, "long": self.number(220, 260)}[size]
        messages = [user(example), {"role": "assistant", "content": answer}, user(text)]
        return Asked("code_edit", messages, limit)

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

    def prose(self) -> str:
        """A brief for creative writing: nothing in it is worth copying."""
        wishes = " ".join(self.some(phrases.WISHES, self.number(10, 13)))
        subject = (
            f"Write {self.one(phrases.FORMS)} about {self.one(phrases.HEROES)}"
            f" {self.one(phrases.SCENES)} who finds {self.one(phrases.FINDS)}."
        )
        mood = f"The mood is {self.one(phrases.MOODS)}."
        if self.number(0, 1):
            return f"{wishes} {mood}\n\n{subject}"
        return f"{subject} {mood} {wishes} Begin directly with the text."


def prose_prompt(pick: int, seed: int = SEED) -> str:
    """The brief with this number; each has a generator of its own, so that picks are free."""
    return Writer(np.random.default_rng([seed, pick])).prose()


def _sentence(record: dict[str, str | int]) -> str:
    """The order as somebody would note it."""
    return (
        "{name}, {street}, {town}, ordered {amount} pieces of {colour} {item} under order number"
        " {order}. Each weighs {weight_kg} kg and costs {price}. {carrier} will bring them {day}."
        " Note: {note}."
    ).format(**record)


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


def _singles(seed: int) -> list[Asked]:
    """Requests that stand alone; each class has a generator of its own."""
    asked = []
    for number, (label, count) in enumerate(COUNTS.items()):
        writer = Writer(np.random.default_rng([seed, 1000 + number]))
        makers = {
            "support": writer.support,
            "extraction": writer.extraction,
            "code_edit": writer.code_edit,
            "summary": writer.summary,
        }
        asked += [makers[label](place) for place in range(count)]
    return asked + [
        Asked("prose", [user(prose_prompt(pick, seed))], limit) for pick, limit in PROSE_PICKS
    ]


def _visits(seed: int) -> list[list[Asked]]:
    writer = Writer(np.random.default_rng([seed, 2000]))
    return [list(writer.session(place)) for place in range(SESSIONS)]


def make_rows(seed: int = SEED) -> list[Row]:
    """All requests in order of arrival, without recorded answers."""
    rng = np.random.default_rng(seed)
    groups = [[asked] for asked in _singles(seed)] + _visits(seed)
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
