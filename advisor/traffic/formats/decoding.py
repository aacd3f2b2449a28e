"""JSON that exporters wrote into strings, once or several times."""

import json

MAX_DECODES = 3
_STARTS = ("{", "[", '"')


def decoded(value: object) -> object:
    """What a value holds after taking off up to three layers of JSON in a string.

    A string that is no JSON of an object, a list or a string is what it is.
    """
    for _ in range(MAX_DECODES):
        if not isinstance(value, str) or not value.lstrip().startswith(_STARTS):
            break
        found = _once(value)
        if found is None:
            break
        value = found
    return value


def unwrapped(value: str) -> str:
    """The text itself where an exporter wrote a string as JSON, else the string as it is.

    JSON of an object or a list stays text: a model may have been asked to answer so.
    """
    for _ in range(MAX_DECODES):
        if not value.startswith('"'):
            break
        found = _once(value)
        if not isinstance(found, str):
            break
        value = found
    return value


def _once(value: str) -> object:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None
