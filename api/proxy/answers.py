"""Error bodies in the form that OpenAI clients read."""

import json
from http import HTTPStatus

from starlette.responses import JSONResponse

from api.proxy.frames import body_of

SERVER_ERRORS = 500


def error_body(
    message: str, *, kind: str, code: str | int | None = None, param: str | None = None
) -> dict[str, object]:
    """``{"error": {...}}`` with the fields of the OpenAI API; `kind` is its `type`."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def refusal(
    status: int,
    message: str,
    *,
    kind: str,
    code: str | None = None,
    retry_after_s: int | None = None,
) -> JSONResponse:
    """An error of the proxy's own."""
    headers = {} if retry_after_s is None else {"Retry-After": str(retry_after_s)}
    if status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(
        error_body(message, kind=kind, code=code), status_code=status, headers=headers
    )


def openai_error(status: int, content: bytes) -> bytes:
    """An engine's error body in the OpenAI form: as it is where it has that form already.

    Other forms that engines use: the fields without their envelope, FastAPI's ``detail``, no JSON.
    """
    body = body_of(content)
    if body is not None and isinstance(body.get("error"), dict):
        return content
    kind = "server_error" if status >= SERVER_ERRORS else "invalid_request_error"
    held: object = None
    if body is not None:
        kind = str(body.get("type") or kind)
        held = body.get("error") or body.get("message") or body.get("detail")
        held = json.dumps(held) if isinstance(held, list | dict) else held
    message = str(held) if held else f"the engine answered {status}"
    return json.dumps(error_body(message, kind=kind, code=status)).encode()
