"""Reading figures out of a tool's JSON; a refusal names the field as the file has it.

No refusal quotes what stands there: a detailed file holds prompts and answers.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from advisor.errors import InvalidInput

REMEDY = "send the file as the tool wrote it"
LONGEST_TEXT = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
    """One JSON object of a result file and the dotted way to it."""

    held: Mapping[str, object]
    path: str = ""

    def field(self, name: str) -> str:
        """The whole name of a field of this object."""
        return f"{self.path}.{name}" if self.path else name

    def refuse(self, name: str, reason: str) -> NoReturn:
        """Raise `InvalidInput` for a field of this object."""
        raise InvalidInput(self.field(name), f"{reason}; {REMEDY}")

    def states(self, name: str) -> bool:
        """Whether the field is there with a value."""
        return self.held.get(name) is not None

    def part(self, name: str) -> "Fields | None":
        """The object under a name, None where there is none."""
        value = self.held.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            self.refuse(name, "is not an object")
        return Fields(held=value, path=self.field(name))

    def needed_part(self, name: str) -> "Fields":
        """The object under a name; refused where there is none."""
        found = self.part(name)
        if found is None:
            self.refuse(name, "is missing")
        return found

    def parts(self, name: str) -> tuple["Fields", ...]:
        """The objects of a list; none where there is no list."""
        return tuple(
            Fields(held=item, path=f"{self.field(name)}[{index}]")
            for index, item in enumerate(self.items(name))
            if isinstance(item, dict)
        )

    def items(self, name: str) -> list[object]:
        """The list under a name; empty where there is none."""
        value = self.held.get(name)
        if value is None:
            return []
        if not isinstance(value, list):
            self.refuse(name, "is not a list")
        return value

    def number(self, name: str) -> float | None:
        """A finite number of at least 0, None where the file does not say."""
        value = self.held.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.refuse(name, "is not a number")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            self.refuse(name, "is not a finite number")
        if number < 0:
            self.refuse(name, "is below 0")
        return number

    def needed(self, name: str) -> float:
        """A number that a result cannot do without."""
        found = self.number(name)
        if found is None:
            self.refuse(name, "is missing")
        return found

    def count(self, name: str) -> int | None:
        """A whole number, None where the file does not say."""
        found = self.number(name)
        if found is not None and not found.is_integer():
            self.refuse(name, "is not a whole number")
        return None if found is None else int(found)

    def needed_count(self, name: str) -> int:
        """A whole number that a result cannot do without."""
        found = self.count(name)
        if found is None:
            self.refuse(name, "is missing")
        return found

    def name(self, name: str) -> str | None:
        """A short name (a model, a version); None where the file does not say."""
        value = self.held.get(name)
        if value is None:
            return None
        if not isinstance(value, str) or not value.isprintable() or len(value) > LONGEST_TEXT:
            self.refuse(name, f"is not a name of at most {LONGEST_TEXT} printable characters")
        return value or None
