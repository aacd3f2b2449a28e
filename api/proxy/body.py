"""A request's body, with a limit."""

from starlette.requests import Request
from starlette.responses import Response

from api.proxy.answers import refusal


async def read_body(request: Request, limit_bytes: int) -> bytes | Response:
    """The body, or a 413 before more than `limit_bytes` are read.

    Raises starlette's `ClientDisconnect` for a client that leaves meanwhile.
    """
    told = request.headers.get("content-length", "")
    raw = bytearray()
    if not told.isdecimal() or int(told) <= limit_bytes:
        async for chunk in request.stream():
            raw += chunk
            if len(raw) > limit_bytes:
                break
        else:
            return bytes(raw)
    refused = f"the body is too large: {limit_bytes} bytes are the most"
    return refusal(413, refused, kind="invalid_request_error", code="body_too_large")
