"""Prompts as the engine sees them: chat template rendered, tokens counted (cases T-08, T-10)."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time
from typing import cast

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer
from typing_extensions import override

from advisor.canonical import digest
from advisor.errors import InvalidInput
from advisor.traffic.trace import Request, RequestKind, TokenColumns

NO_TEMPLATE = "none"
# Templates that print a date get a fixed one: token columns are stored and must not age.
TEMPLATE_DATE = date(2026, 1, 1)
_BATCH = 256

Ids = tuple[int, ...]


class _Generation(Extension):
    """`{% generation %}` marks the assistant's words for training; for rendering it is nothing."""

    tags = {"generation"}  # noqa: RUF012 -- the base class declares it as an instance attribute

    @override
    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _tojson(
    value: object,
    *,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without the HTML escapes of Jinja's own filter, as chat templates expect."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _clock(day: date) -> Callable[[str], str]:
    return lambda pattern: datetime.combine(day, time()).strftime(pattern)


def _environment(day: date) -> jinja2.Environment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[loopcontrols, _Generation],
        autoescape=False,  # a prompt is not HTML
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _clock(day)
    return environment


def _wants_parts(environment: jinja2.Environment, source: str) -> bool:
    """Whether a template loops over a message's content, so that it takes a list of parts.

    Engines join text parts with line breaks for the other templates.
    """
    for loop in environment.parse(source).find_all(nodes.For):
        target = loop.iter
        while isinstance(target, nodes.Filter) and target.node is not None:
            target = target.node
        if isinstance(target, nodes.Getattr) and target.attr == "content":
            return True
        if (
            isinstance(target, nodes.Getitem)
            and isinstance(target.arg, nodes.Const)
            and target.arg.value == "content"
        ):
            return True
    return False


class ChatTokenizer:
    """One model's tokenizer and chat template.

    `special` maps ``bos_token``, ``eos_token`` and the like to their text. Raises `InvalidInput`
    for a `tokenizer.json` or a template that cannot be read. Without a template a chat request
    has no prompt: `prompt_ids` gives None.
    """

    def __init__(
        self,
        tokenizer_json: bytes,
        chat_template: str | None,
        special: Mapping[str, str],
        *,
        template_date: date = TEMPLATE_DATE,
    ) -> None:
        self._tokenizer = _tokenizer(tokenizer_json)
        self._special = dict(special)
        self.tokenizer_digest = hashlib.sha256(tokenizer_json).hexdigest()
        self.template_digest = NO_TEMPLATE
        self._template: jinja2.Template | None = None
        self._parts = False
        if chat_template is not None:
            self.template_digest = digest({"template": chat_template, "special": self._special})
            environment = _environment(template_date)
            try:
                self._template = environment.from_string(chat_template)
                self._parts = _wants_parts(environment, chat_template)
            except jinja2.TemplateError as error:
                raise InvalidInput("chat_template", "not a Jinja template") from error

    def prompt_text(self, request: Request) -> str | None:
        """The whole prompt with the generation prompt; None for lengths and unusable chats."""
        if request.prompt is not None:
            return request.prompt
        if request.messages is None or self._template is None:
            return None
        messages = [self._message(message) for message in json.loads(request.messages)]
        try:
            return self._template.render(
                messages=messages,
                tools=None if request.tools is None else json.loads(request.tools),
                documents=None,
                add_generation_prompt=True,
                **self._special,
            )
        except (jinja2.TemplateError, TypeError, ValueError, ArithmeticError, LookupError):
            # A template may refuse a conversation (roles must alternate): so would the engine.
            return None

    def _message(self, message: dict[str, object]) -> dict[str, object]:
        """A message in the form in which the engine hands it to the template."""
        content = message.get("content") or []
        parts = cast("list[dict[str, str]]", content)
        if isinstance(content, str):
            parts = [{"type": "text", "text": content}]
        if self._parts and message["role"] != "tool":
            message["content"] = parts
        else:
            message["content"] = "\n".join(part["text"] for part in parts)
        calls = message.pop("tool_calls", None)
        if isinstance(calls, list) and calls:
            message["tool_calls"] = [_parsed_call(call) for call in calls]
        return message

    def prompt_ids(self, request: Request) -> tuple[int, ...] | None:
        """Token ids of the prompt; special tokens are added to plain completions only."""
        text = self.prompt_text(request)
        if text is None:
            return None
        plain = request.kind is RequestKind.COMPLETION
        return tuple(self._tokenizer.encode(text, add_special_tokens=plain).ids)

    def text_ids(self, text: str) -> tuple[int, ...]:
        """Token ids of a text without special tokens."""
        return tuple(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def batch_ids(self, texts: Sequence[str], *, special: bool) -> list[tuple[int, ...]]:
        """Token ids of several texts at once."""
        found = self._tokenizer.encode_batch(list(texts), add_special_tokens=special)
        return [tuple(item.ids) for item in found]


def _tokenizer(body: bytes) -> Tokenizer:
    try:
        tokenizer = Tokenizer.from_str(body.decode())
    except Exception as error:  # the Rust library raises it bare
        raise InvalidInput("tokenizer_json", "not a tokenizer of the tokenizers library") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _parsed_call(call: object) -> object:
    """A tool call with its arguments as an object: templates print them as JSON themselves."""
    if not isinstance(call, dict) or not isinstance(call.get("function"), dict):
        return call
    arguments = call["function"].get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            arguments = None
    if not isinstance(arguments, dict):
        arguments = {}
    return {**call, "function": {**call["function"], "arguments": arguments}}


def token_columns(requests: Sequence[Request], tokenizer: ChatTokenizer) -> TokenColumns:
    """Tokens of every prompt and recorded response, None where there is no text.

    Token ids of the very run, where the log holds them, are taken as they are: what a tokenizer
    makes of the text may differ from what the model said (case S-21).
    """
    prompts: list[Ids | None] = []
    outputs: list[Ids | None] = []
    for start in range(0, len(requests), _BATCH):
        part = requests[start : start + _BATCH]
        prompts += _prompts(tokenizer, part)
        texts = [None if item.output_ids is not None else item.response for item in part]
        encoded = _encoded(tokenizer, texts, special=False)
        outputs += [
            own if item.output_ids is None else item.output_ids
            for item, own in zip(part, encoded, strict=True)
        ]
    return TokenColumns.of(
        tokenizer_digest=tokenizer.tokenizer_digest,
        template_digest=tokenizer.template_digest,
        prompts=prompts,
        outputs=outputs,
    )


def token_parts(
    parts: Iterable[Sequence[Request]], tokenizer: ChatTokenizer
) -> Iterator[tuple[Sequence[Request], TokenColumns]]:
    """Each part of an upload with its columns, as it is asked for: only one is held at a time."""
    for part in parts:
        yield part, token_columns(part, tokenizer)


def _prompts(tokenizer: ChatTokenizer, part: Sequence[Request]) -> list[Ids | None]:
    """Special tokens are added to plain completions only: a chat template writes its own."""
    chats = [
        tokenizer.prompt_text(item)
        if item.prompt_ids is None and item.kind is RequestKind.CHAT
        else None
        for item in part
    ]
    plain = [item.prompt if item.prompt_ids is None else None for item in part]
    columns = zip(
        part,
        _encoded(tokenizer, chats, special=False),
        _encoded(tokenizer, plain, special=True),
        strict=True,
    )
    return [
        next((ids for ids in (item.prompt_ids, chat, text) if ids is not None), None)
        for item, chat, text in columns
    ]


def _encoded(
    tokenizer: ChatTokenizer, texts: Sequence[str | None], *, special: bool
) -> list[Ids | None]:
    found = iter(tokenizer.batch_ids([text for text in texts if text is not None], special=special))
    return [None if text is None else next(found) for text in texts]
