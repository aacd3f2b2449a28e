"""Redaction: what names a person or opens a door is replaced, the shape of the text stays."""

import pytest

from advisor.traffic.privacy import Redactor


@pytest.mark.parametrize(
    "text, redacted",
    [
        ("mail ada.l+x@mail.example.org now", "mail <email-1> now"),
        ("call +44 (0)20 7946 0958.", "call <number-1>."),
        ("card 4111 1111 1111 1111", "card <number-1>"),
        ("from 10.1.2.30:80", "from <address-1>:80"),
        ("use sk-abcDEF0123456789abcd", "use <key-1>"),
        ("token 3f786850e387550fdab836ed7e6dc881de23001b", "token <key-1>"),
        ("postgres://ada:secret@db/x", "postgres://<credentials-1>@db/x"),
        ("pay DE89 3704 0044 0532 0130 00 today", "pay <iban-1> today"),
        ("in 2024 we had 128,000 users and pi is 3.14159265358", None),
        ("a-very-long-hyphenated-compound-word-without-digits", None),
    ],
)
def test_values_that_open_a_door_are_replaced(text: str, redacted: str | None) -> None:
    """Plain words, years and figures stay."""
    assert Redactor().text(text) == (redacted or text)


def test_one_value_is_one_placeholder_wherever_it_stands() -> None:
    """Shared prefixes stay shared, and an answer that copies its prompt stays a copy."""
    redactor = Redactor()
    first = redactor.value({"messages": [{"content": "ada@x.org and bob@x.org"}], "n": 1})
    second = redactor.value(["bob@x.org wrote to ada@x.org", None, True, 0.5])

    assert first == {"messages": [{"content": "<email-1> and <email-2>"}], "n": 1}
    assert second == ["<email-2> wrote to <email-1>", None, True, 0.5]


def test_redacting_twice_changes_nothing_more() -> None:
    """A placeholder holds nothing to redact."""
    redactor = Redactor()
    once = redactor.text("ada@x.org, 4111 1111 1111 1111, 10.1.2.30")

    assert redactor.text(once) == once
