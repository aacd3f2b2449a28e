"""Prompts for loads on the demo model, from the sample traffic, so that they are real text."""

import json
from pathlib import Path

SAMPLE = Path(__file__).parents[2] / "samples" / "traffic.jsonl"


def prompts(count: int, characters: int, *, first: int = 0) -> tuple[str, ...]:
    """`count` texts of that many characters, no two with the same beginning.

    English text has about four characters a token. `first` numbers the first of them: other
    numbers, other texts.
    """
    text = "\n".join(_texts())
    step = len(text) // (first + count + 1)
    chosen = []
    for number in range(first, first + count):
        start = number * step
        body = (text[start:] + text)[:characters]
        chosen.append(f"Text {number}: {body}"[:characters])
    return tuple(chosen)


def _texts() -> list[str]:
    rows = [json.loads(line) for line in SAMPLE.read_text(encoding="utf-8").splitlines()]
    return [str(message["content"]) for row in rows for message in row.get("messages", ())]
