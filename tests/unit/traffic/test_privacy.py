"""Redaction: what names a person or opens a door is replaced, the form of the text stays."""

import json
import re
from pathlib import Path

import pytest

from advisor.canonical import Json
from advisor.traffic.privacy.redaction import PRIVACY_LIMITS, Redactor, said_of
from advisor.traffic.summary import summarise
from advisor.traffic.tokens import ChatTokenizer
from advisor.traffic.trace import Privacy, Request, RequestKind
from tests.fakes.tokenizer import byte_tokenizer_json

SECRET = b"one upload"
SAMPLE = Path(__file__).resolve().parents[3] / "samples" / "traffic.jsonl"
# A text, and what of it must not be left.
DELICATE = (
    ("mail ada.l+x@mail.example.org now", ("ada", "mail.example")),
    ("call +44 (0)20 7946 0958.", ("7946 0958",)),
    ("or (555) 123-4567, 555-123-4567 x2", ("123-4567",)),
    ("oder 0171 2345678", ("2345678",)),
    ("order 5551234567", ("5551234567",)),
    ("card 4111 1111 1111 1111", ("4111 1111",)),
    ("card 5500-0000-0000-0004", ("0000-0000-0004",)),
    ("from 10.1.2.30:80", ("10.1.2.30",)),
    ("via fe80::1ff:fe23:4567:890a", ("fe23:4567",)),
    ("mac 00:1A:2B:3C:4D:5E", ("1A:2B:3C",)),
    ("ssn 123-45-6789", ("123-45-6789",)),
    ("use sk-abcDEF0123456789abcd", ("abcDEF0123456789abcd",)),
    ("token 3f786850e387550fdab836ed7e6dc881de23001b", ("3f786850e387",)),
    ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcDEF123", ("hbGciOiJIUzI1NiJ9", "zdWIiOiIx")),
    ("password = hunter2secret", ("hunter2secret",)),
    ('{"api_key": "qwertz77"}', ("qwertz77",)),
    ("Authorization: Bearer abcdef.ghijkl-mnop", ("abcdef.ghijkl",)),
    ("postgres://ada:hidden7@db/x", ("ada:hidden7",)),
    ("pay DE89 3704 0044 0532 0130 00 today", ("3704 0044",)),
    (
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKC\n-----END RSA PRIVATE KEY-----",
        ("MIIEpAIBAAKC",),
    ),
    ("Dear Mr. Lovelace,\nKind regards,\nAda Byron", ("Lovelace", "Ada", "Byron")),
    ("my name is ada, and ada likes tea", ("ada",)),
    ("From: Ada Byron <a@x.org>\nTo: Charles", ("Ada", "Byron", "Charles")),
    ("ada.byron@x.org: Byron and ADA", ("Byron", "ADA", "byron")),
)
HARMLESS = (
    "in 2024 we had 128,000 users and pi is 3.14159265358",
    "a-very-long-hyphenated-compound-word-without-digits",
    "on 2024-01-15 10:30:00 and 15/01/2024 it cost 1,000,000 or 1 000 000",
    "std::vector<int> a::b::c at 12:30:45, version 1.2.3",
    "Hello there, Hi all! Dear customer, please say what is wrong",
    "call me maybe: the secret of the token is its length",
)


def request(**fields: object) -> Request:
    """A chat request with these fields."""
    held: dict[str, object] = {"messages": "[]", **fields}
    return Request(id="r1", index=0, line=1, kind=RequestKind.CHAT, **held)  # type: ignore[arg-type]


@pytest.mark.parametrize("text, gone", DELICATE)
def test_values_that_open_a_door_are_replaced_in_the_same_form(
    text: str, gone: tuple[str, ...]
) -> None:
    """As long as before, letters where letters were, digits where digits were."""
    found = Redactor(SECRET).text(text)

    assert [word for word in gone if word in found] == []
    assert len(found) == len(text)
    assert [letter.isalnum() for letter in found] == [letter.isalnum() for letter in text]


@pytest.mark.parametrize("text", HARMLESS)
def test_plain_words_dates_and_figures_stay(text: str) -> None:
    """What names nobody is not touched."""
    assert Redactor(SECRET).text(text) == text


def test_one_value_has_one_substitute_wherever_it_stands() -> None:
    """Shared prefixes stay shared, and an answer that copies its prompt stays a copy."""
    redactor = Redactor(SECRET)
    first = redactor.text("ada@x.org, card 4111111111111111, write to Mr. Byron")
    second = redactor.text("Mr. Byron has 4111 1111 1111 1111 and ada@x.org")
    card = re.findall(r"\d{16}", first)

    assert first.split(",")[0] == second.split(" and ")[1]
    assert first.rsplit(" ", 1)[1] == second.split(" ")[1]
    assert card == ["".join(re.findall(r"\d", second))]
    assert redactor.text("ada@x.org") == Redactor(SECRET).text("ada@x.org")
    assert redactor.text("ada@x.org") != Redactor(b"another upload").text("ada@x.org")


def test_redacting_twice_finds_nothing_more() -> None:
    """The second pass changes only what the first one put there, and never brings a value back."""
    redactor = Redactor(SECRET)
    for text, gone in DELICATE:
        once = redactor.text(text)
        twice = redactor.text(once)
        first = {at for at, (old, new) in enumerate(zip(text, once, strict=True)) if old != new}
        then = {at for at, (old, new) in enumerate(zip(once, twice, strict=True)) if old != new}

        assert then <= first, text
        assert not any(word in twice for word in gone), text


def test_all_texts_of_a_request_are_redacted_and_no_count() -> None:
    """Messages, tools and their calls, answer, format and class; ids and the session are hashed."""
    mail, session = "ada@x.org", "chat of ada"
    call = {"id": "call_1", "function": {"name": "f", "arguments": json.dumps({"to": mail})}}
    held = request(
        messages=json.dumps(
            [
                {"role": "user", "content": f"my name is Ada, {mail}"},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "call_1", "content": '{"n": 12345678, "m": 7}'},
            ]
        ),
        tools=json.dumps([{"function": {"name": "f", "description": f"asks {mail}"}}]),
        response_format=json.dumps({"type": "json_schema", "default": mail}),
        response=f"Dear Ada, I wrote to {mail}",
        label=mail,
        session=session,
        source_id=mail,
        prompt_tokens=12345678,
        output_tokens=9,
        max_tokens=7654321,
        prompt_ids=(1, 2),
        output_ids=(3,),
    )
    found = Redactor(SECRET).request(held)
    texts = [found.messages, found.tools, found.response_format, found.response, found.label]
    asked, called, answered = json.loads(found.messages or "")
    name = asked["content"].split(" ")[3][:-1]
    substitute = asked["content"].rsplit(" ", 1)[1]

    assert not any("ada" in (text or "").lower() or "12345678" in (text or "") for text in texts)
    assert all(substitute in (text or "") for text in texts)
    assert name in (found.response or "")
    assert json.loads(called["tool_calls"][0]["function"]["arguments"]) == {"to": substitute}
    assert called["tool_calls"][0]["id"] == answered["tool_call_id"] != "call_1"
    assert json.loads(answered["content"])["m"] == 7
    assert found.session not in {None, session}
    assert found.source_id not in {None, mail}
    assert (found.prompt_ids, found.output_ids) == (None, None)
    assert (found.prompt_tokens, found.output_tokens, found.max_tokens) == (12345678, 9, 7654321)


def test_a_json_text_stays_json_whatever_its_escapes() -> None:
    """The n of a line feed is no letter of the address behind it."""
    broken = '{"note": "x\\nada@x.org"'
    redactor = Redactor(SECRET)
    whole = redactor.text(broken + "}")

    assert json.loads(whole)["note"].startswith("x\n")
    assert "ada" not in whole + redactor.text(broken)
    assert json.loads(redactor.text(broken) + "}")["note"].startswith("x\n")


def test_values_of_a_json_value_are_redacted_together() -> None:
    """A name that one text gives is taken out of the others; keys, numbers and flags stay."""
    value: dict[str, Json] = {
        "a": "my name is Ada",
        "b": ["Ada wrote", None, True, 0.5, 12345678],
        "c": {"d": "x"},
    }
    found = Redactor(SECRET).value(value)

    assert isinstance(found, dict)
    assert "Ada" not in json.dumps(found)
    assert found["b"][1:] == [None, True, 0.5, 12345678]  # type: ignore[index]
    assert found["c"] == {"d": "x"}


def test_token_counts_nearly_survive() -> None:
    """Own samples under a tokenizer of bytes: not one token more or less."""
    tokenizer = ChatTokenizer(byte_tokenizer_json(), None, {})
    redactor = Redactor(SECRET)
    rows = [json.loads(line) for line in SAMPLE.read_text(encoding="utf-8").splitlines()[:200]]
    before = [json.dumps(row, ensure_ascii=False) for row in rows] + [text for text, _ in DELICATE]
    after = [redactor.text(text) for text in before]
    counts = [[len(tokenizer.text_ids(text)) for text in texts] for texts in (before, after)]

    assert sum(old != new for old, new in zip(before, after, strict=True)) >= len(DELICATE)
    assert counts[0] == counts[1]


@pytest.mark.parametrize("privacy", list(Privacy))
def test_a_mode_says_what_it_cannot_support(privacy: Privacy) -> None:
    """In the summary beside the other reasons; the whole text supports everything."""
    summary = said_of(summarise([request()], None, block_size=16), privacy)
    said = summary.unmeasurable.get("privacy", "")

    assert all(limit in said for limit in PRIVACY_LIMITS[privacy])
    assert (said == "") == (privacy is Privacy.RAW)
