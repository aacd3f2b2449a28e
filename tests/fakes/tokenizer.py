"""A tokenizer with one token per byte, and chat templates small enough to read."""

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

# The form of ChatML: string content, no tools.
PLAIN_TEMPLATE = (
    "{% for message in messages %}<{{ message['role'] }}>{{ message['content'] }}</s>\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
# Prints the tools and the calls, as templates of tool-using models do.
TOOL_TEMPLATE = (
    "{{ bos_token }}{% if tools %}<tools>{{ tools | tojson }}</tools>{% endif %}"
    "{% for message in messages %}<{{ message.role }}>{{ message.content }}"
    "{% for call in message.tool_calls or [] %}<call>{{ call.function.name }}"
    "{{ call.function.arguments.town }}</call>{% endfor %}</s>{% endfor %}"
)
# Loops over parts of the content.
PARTS_TEMPLATE = (
    "{% for message in messages %}<{{ message['role'] }}>"
    "{% for part in message['content'] | list %}[{{ part.text }}]{% endfor %}{% endfor %}"
)


def byte_tokenizer_json(*, with_bos: bool = False) -> bytes:
    """`tokenizer.json` whose ids are bytes; with `with_bos` the id 256 begins a text."""
    vocab = {
        letter: place for place, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))
    }
    vocab["<s>"] = len(vocab)
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    if with_bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", vocab["<s>"])]
        )
    return tokenizer.to_str().encode()
