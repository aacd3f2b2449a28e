"""The limits of a class on the command line."""

import pytest
from pydantic import ValidationError

from advisor.errors import InvalidInput
from advisor.goal import ClassLimits, Goal
from api.cli.studies import class_limit
from api.inputs import GoalIn


@pytest.mark.parametrize(
    "text,name,limits",
    [
        (
            "chat:ttft_p95_s=2,tpot_p95_s=0.1",
            "chat",
            ClassLimits(ttft_p95_s=2, tpot_p95_s=0.1),
        ),
        ("team:faq: tpot_p95_s=1", "team:faq", ClassLimits(tpot_p95_s=1)),
    ],
)
def test_a_class_and_its_limits_are_read(text: str, name: str, limits: ClassLimits) -> None:
    """One limit or both; the last colon ends the name."""
    assert class_limit(text) == (name, limits)


@pytest.mark.parametrize(
    "text", ["", "chat", "chat:", "ttft_p95_s=2", "chat:ttft=2", "chat:ttft_p95_s=soon", ":a=1"]
)
def test_other_forms_are_refused_with_the_right_one(text: str) -> None:
    """As an example."""
    with pytest.raises(InvalidInput, match="CLASS:ttft_p95_s=2"):
        class_limit(text)


def test_limits_of_a_class_come_over_the_wire() -> None:
    """Either of them; an unknown one is refused."""
    goal = GoalIn.model_validate({"class_limits": {"chat/v2": {"ttft_p95_s": 2.0}}}).to_domain()

    assert goal == Goal(class_limits={"chat/v2": ClassLimits(ttft_p95_s=2)})
    with pytest.raises(ValidationError):
        GoalIn.model_validate({"class_limits": {"chat": {"ttft_p99_s": 2.0}}})
