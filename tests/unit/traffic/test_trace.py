"""Values of an uploaded sample check themselves."""

import pytest

from advisor.errors import InvalidInput
from advisor.traffic.trace import Request, RequestKind
from tests.unit.traffic.rows import lengths


def test_counts_are_not_negative() -> None:
    """No request has -1 tokens."""
    with pytest.raises(InvalidInput, match="prompt_tokens"):
        lengths(0, -1, None)


@pytest.mark.parametrize("kind", [RequestKind.CHAT, RequestKind.COMPLETION])
def test_a_request_with_text_has_its_text(kind: RequestKind) -> None:
    """Messages for a chat, a prompt for a completion."""
    with pytest.raises(InvalidInput):
        Request(id="r", index=0, line=1, kind=kind)
