"""Error bodies in the form that OpenAI clients read."""

from http import HTTPStatus

from starlette.responses import JSONResponse


def refusal(
    status: int,
    message: str,
    *,
    kind: str,
    code: str | None = None,
    retry_after_s: int | None = None,
) -> JSONResponse:
    """``{"error": {...}}`` with the fields of the OpenAI API; `kind` is its `type`."""
    headers = {} if retry_after_s is None else {"Retry-After": str(retry_after_s)}
    if status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    body = {"error": {"message": message, "type": kind, "param": None, "code": code}}
    return JSONResponse(body, status_code=status, headers=headers)
