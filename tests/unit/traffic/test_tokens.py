"""Prompts as the engine sees them, and their tokens."""

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from advisor.errors import InvalidInput
from advisor.traffic.tokens import ChatTokenizer, token_columns, token_parts
from advisor.traffic.trace import Request
from tests.fakes.tokenizer import (
    PARTS_TEMPLATE,
    PLAIN_TEMPLATE,
    TOOL_TEMPLATE,
    byte_tokenizer_json,
)
from tests.unit.traffic.rows import lengths, one

CHAT = {"messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}]}


def tokenizer(template: str | None, **special: str) -> ChatTokenizer:
    return ChatTokenizer(byte_tokenizer_json(with_bos=True), template, special)


def test_a_chat_is_rendered_with_the_generation_prompt() -> None:
    """The template is applied as it stands, without special tokens of the tokenizer's own."""
    found = tokenizer(PLAIN_TEMPLATE)
    text = "<system>Be kind.</s>\n<user>Hi</s>\n<assistant>"

    assert found.prompt_text(one(CHAT)) == text
    assert len(found.prompt_ids(one(CHAT)) or ()) == len(text)


def test_a_plain_completion_gets_the_tokenizers_special_tokens_and_an_output_none() -> None:
    """As the engine does for completions."""
    found = tokenizer(None)
    bos = len(byte_tokenizer_json()) and 256

    assert (found.prompt_ids(one({"prompt": "Hi"})) or ())[0] == bos
    assert len(found.text_ids("Hi")) == 2


def test_without_a_template_a_chat_has_no_prompt() -> None:
    """And the digest says "none"."""
    found = tokenizer(None)

    assert found.prompt_ids(one(CHAT)) is None
    assert found.template_digest == "none"


def test_the_template_digest_follows_template_and_special_tokens() -> None:
    """Either changes the prompts; the tokenizer digest is of its file."""
    digests = {
        tokenizer(PLAIN_TEMPLATE).template_digest,
        tokenizer(TOOL_TEMPLATE).template_digest,
        tokenizer(TOOL_TEMPLATE, bos_token="<s>").template_digest,
    }

    assert len(digests) == 3
    assert (
        tokenizer(None).tokenizer_digest
        != ChatTokenizer(byte_tokenizer_json(), None, {}).tokenizer_digest
    )


def test_special_tokens_and_tools_reach_the_template() -> None:
    """JSON without HTML escapes."""
    tool = {"type": "function", "function": {"name": "a<b>"}}
    row = CHAT | {"tools": [tool]}
    text = tokenizer(TOOL_TEMPLATE, bos_token="<s>").prompt_text(one(row)) or ""

    assert text.startswith(f"<s><tools>[{json.dumps(tool)}]</tools><system>")


@pytest.mark.parametrize(
    "template",
    [
        PARTS_TEMPLATE,
        PARTS_TEMPLATE.replace("message['content'] | list", "message.content"),
    ],
)
def test_a_template_that_loops_over_parts_gets_parts(template: str) -> None:
    """A string becomes one part; a tool's answer stays a string; null becomes nothing."""
    row = {
        "messages": [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "tool_calls": []},
            {"role": "user", "content": [{"type": "text", "text": t} for t in ("a", "b")]},
        ]
    }

    assert tokenizer(template).prompt_text(one(row)) == "<user>[Hi]<assistant><user>[a][b]"


def test_loops_over_other_things_do_not_ask_for_parts() -> None:
    """Only `content` counts."""
    loop = "{% for x in m['tool_calls'] %}{% endfor %}"
    template = "{% for m in messages %}" + loop + "{{ m.content }}{% endfor %}"

    assert tokenizer(template).prompt_text(one(CHAT)) == "Be kind.Hi"


def test_a_tools_answer_in_parts_is_joined() -> None:
    """Templates expect a string there."""
    row = {
        "messages": [
            {"role": "user", "content": "Hi"},
            {"role": "tool", "content": [{"type": "text", "text": t} for t in ("a", "b")]},
        ]
    }
    parts = "{% for p in m.content %}{{ p.text }}{% endfor %}"
    template = (
        "{% for m in messages %}{% if m.role == 'tool' %}{{ m.content }}{% else %}"
        + parts
        + "{% endif %}{% endfor %}"
    )

    assert tokenizer(template).prompt_text(one(row)) == "Hia\nb"


@pytest.mark.parametrize(
    "arguments, shown",
    [
        ('{"town": "Lund"}', "Lund"),
        ({"town": "Lund"}, "Lund"),
        ("{broken", ""),
        (None, ""),
        ("[1]", ""),
    ],
)
def test_arguments_of_calls_reach_the_template_as_objects(arguments: object, shown: str) -> None:
    """What is no object becomes an empty one, as in the engine."""
    call = {"function": {"name": "weather", "arguments": arguments}}
    row = {
        "messages": [{"role": "assistant", "tool_calls": [call]}, {"role": "user", "content": "?"}]
    }

    assert f"<call>weather{shown}</call>" in (tokenizer(TOOL_TEMPLATE).prompt_text(one(row)) or "")


def test_calls_of_an_unknown_shape_are_left_as_they_are() -> None:
    """The template decides."""
    row = {
        "messages": [
            {"role": "assistant", "tool_calls": ["odd", {"id": 1}]},
            {"role": "user", "content": "?"},
        ]
    }
    template = "{% for m in messages %}{{ m.tool_calls | tojson }}{% break %}{% endfor %}"

    assert tokenizer(template).prompt_text(one(row)) == '["odd", {"id": 1}]'


@pytest.mark.parametrize(
    "template",
    [
        "{{ raise_exception('roles must alternate') }}",
        "{{ messages[0].content + 1 }}",
        "{{ messages.__class__.__mro__ }}",
        "{{ 1 / 0 }}",
    ],
)
def test_a_template_that_refuses_a_chat_gives_no_prompt(template: str) -> None:
    """So does the sandbox."""
    assert tokenizer(template).prompt_ids(one(CHAT)) is None


def test_a_template_may_print_a_date_and_mark_generations() -> None:
    """The date is fixed: token columns are stored."""
    template = "{% generation %}{{ strftime_now('%d %b %Y') }}{% endgeneration %}"

    assert tokenizer(template).prompt_text(one(CHAT)) == "01 Jan 2026"


def test_unreadable_files_of_a_model_are_named() -> None:
    """A template that is no Jinja, a tokenizer that is no JSON."""
    with pytest.raises(InvalidInput, match="chat_template"):
        tokenizer("{% for %}")
    with pytest.raises(InvalidInput, match="tokenizer_json"):
        ChatTokenizer(b"{}", None, {})


def test_columns_hold_what_single_calls_give() -> None:
    """Chats, completions, lengths, with and without answers, over more than one batch."""
    rows = [one(CHAT), one({"prompt": "Hi", "response": "Hey"}), lengths(2, 5, 5)] * 100
    found = tokenizer(PLAIN_TEMPLATE)
    columns = token_columns(rows, found)

    assert tuple(columns.prompts) == tuple(found.prompt_ids(row) for row in rows)
    assert tuple(columns.outputs) == (None, found.text_ids("Hey"), None) * 100
    assert (columns.tokenizer_digest, columns.template_digest) == (
        found.tokenizer_digest,
        found.template_digest,
    )


def test_messages_of_the_file_are_not_changed_by_rendering() -> None:
    """The replay sends what the file held."""
    request = one({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]})
    tokenizer(PLAIN_TEMPLATE).prompt_ids(request)

    assert json.loads(request.messages or "")[0]["content"] == [{"type": "text", "text": "a"}]


def test_token_ids_of_the_run_win_over_the_tokenizer() -> None:
    """Each by itself: a log may hold the answer's ids only."""
    plain = one({"prompt": "Hi", "response": "Hey"})
    rows = [replace(plain, output_ids=(7, 8)), replace(plain, prompt_ids=(1, 2, 3)), plain]
    found = tokenizer(None)
    columns = token_columns(rows, found)

    assert list(columns.prompts) == [found.prompt_ids(plain), (1, 2, 3), found.prompt_ids(plain)]
    assert list(columns.outputs) == [(7, 8), found.text_ids("Hey"), found.text_ids("Hey")]


def test_an_empty_prompt_is_not_an_unknown_one() -> None:
    """A template that renders nothing."""
    columns = token_columns([one(CHAT)], tokenizer("{{ '' }}"))

    assert list(columns.prompts) == [()]


def test_parts_are_counted_as_they_are_asked_for() -> None:
    """Only one is held at a time."""
    asked: list[int] = []

    def parts() -> Iterator[tuple[Request, ...]]:
        for place in range(3):
            asked.append(place)
            yield (one({"prompt": "Hi"}),)

    found = token_parts(parts(), tokenizer(None))
    part, columns = next(found)

    assert asked == [0]
    assert (len(part), len(columns.prompts)) == (1, 1)
    assert len(list(found)) == 2
