"""Requests without their text: keyed hashes of token blocks and counts, or counts and times only.

The secret is made for one upload and kept nowhere, so the hashes cannot be tried against guesses
and say nothing across uploads; within one, equal prefixes have equal hashes.
"""

from dataclasses import replace
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from advisor.errors import InvalidInput
from advisor.traffic.reuse.prefix import chain_hashes
from advisor.traffic.trace import Privacy, Request, RequestKind

_HASH_BYTES = 8
_POSITIVE = (1 << 63) - 1  # stored as 64 bits with a sign
_SCOPE_ID, _SCOPE_BLOCK, _SCOPE_FILE = b"id", b"block", b"file"

Ids = NDArray[np.int32]


class Stripper:
    """Takes the text of requests away, in two steps; statistics that need it come between them.

    `block_size` is the number of tokens in a hashed block.
    """

    def __init__(self, secret: bytes, privacy: Privacy, *, block_size: int) -> None:
        if privacy not in {Privacy.HASHED, Privacy.LENGTHS}:
            raise InvalidInput("privacy", f"{privacy.value} keeps text")
        if block_size < 1:
            raise InvalidInput("block_size", f"{block_size} is not at least 1")
        self._key = blake2b(secret).digest()
        self._privacy = privacy
        self._block_size = block_size
        self._labels: dict[str, str] = {}

    def unnamed(self, request: Request) -> Request:
        """The request with its text, but with nothing of the file's that statistics would name.

        A session becomes a keyed hash, a class a number in order of appearance.
        """
        label = request.label
        if label is not None:
            label = self._labels.setdefault(label, f"class {len(self._labels) + 1}")
        session = None if request.session is None else self._hashed(request.session)
        return replace(request, source_id=None, model=None, session=session, label=label)

    def stripped(self, request: Request, prompt: Ids | None, output: Ids | None) -> Request:
        """What is kept of an `unnamed` request; `prompt` and `output` are its token ids.

        A prompt without them keeps the count that the file reports, and hashes of the file's own
        block ids.
        """
        return replace(
            request,
            kind=RequestKind.LENGTHS,
            messages=None,
            prompt=None,
            tools=None,
            response_format=None,
            response=None,
            prompt_ids=None,
            output_ids=None,
            prompt_tokens=request.prompt_tokens if prompt is None else len(prompt),
            output_tokens=request.output_tokens if output is None else len(output),
            block_ids=self._blocks(request, prompt) if self._privacy is Privacy.HASHED else None,
        )

    def _blocks(self, request: Request, prompt: Ids | None) -> tuple[int, ...] | None:
        if prompt is not None:
            return self._chain(prompt)
        if request.block_ids is None:
            return None
        return tuple(
            self._number(_SCOPE_FILE, number.to_bytes(16, "big", signed=True))
            for number in request.block_ids
        )

    def _chain(self, prompt: Ids) -> tuple[int, ...]:
        found = chain_hashes(prompt, self._block_size, key=self._key, person=_SCOPE_BLOCK)
        return tuple((found & np.uint64(_POSITIVE)).tolist())

    def _number(self, scope: bytes, body: bytes) -> int:
        made = blake2b(body, key=self._key, person=scope, digest_size=_HASH_BYTES)
        return int.from_bytes(made.digest(), "big") & _POSITIVE

    def _hashed(self, name: str) -> str:
        body = name.encode("utf-8", "surrogatepass")
        return blake2b(body, key=self._key, person=_SCOPE_ID, digest_size=_HASH_BYTES).hexdigest()
