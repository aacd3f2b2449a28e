"""What was seen of one answer, frame by frame."""

from probes.load.sse import Frame, Usage


class Answer:
    """What was seen of one answer so far. `error` names the failure that ended it."""

    __slots__ = (
        "accepted_histogram", "content", "done", "error", "finish_reason", "frame_times_s",
        "frame_tokens", "frames", "keep_content", "token_ids", "usage",
    )  # fmt: skip

    def __init__(self, *, keep_content: bool) -> None:
        self.keep_content = keep_content
        self.frames = 0
        self.frame_times_s: list[float] = []
        self.frame_tokens: list[int | None] = []
        self.token_ids: list[int] | None = None
        self.content: list[str] = []
        self.usage: Usage | None = None
        self.finish_reason: str | None = None
        self.accepted_histogram: tuple[int, ...] | None = None
        self.done = False
        self.error: str | None = None

    def add(self, frame: Frame, at_s: float) -> None:
        """The next frame, which arrived at `at_s`; nothing counts after an error."""
        self.frames += 1
        ids = frame.token_ids
        if frame.carries_token:
            self.frame_times_s.append(at_s)
            self.frame_tokens.append(None if ids is None else len(ids))
        if ids is not None:
            if self.token_ids is None:
                self.token_ids = []
            self.token_ids += ids
        if self.keep_content and frame.content:
            self.content.append(frame.content)
        if frame.usage is not None:
            self.usage = frame.usage
        if frame.finish_reason is not None:
            self.finish_reason = frame.finish_reason
        if frame.accepted_histogram is not None:
            self.accepted_histogram = frame.accepted_histogram
        self.done = self.done or frame.done
        self.error = self.error or frame.error

    @property
    def output_tokens(self) -> int | None:
        """The engine's usage wins, then its token ids (case S-21); frames are never counted."""
        if self.usage is not None and self.usage.completion_tokens is not None:
            return self.usage.completion_tokens
        return None if self.token_ids is None else len(self.token_ids)

    @property
    def tokens_by_frame(self) -> tuple[int, ...] | None:
        """How many tokens each frame carried; None where one of them did not say."""
        counts = tuple(count for count in self.frame_tokens if count is not None)
        return counts if counts and len(counts) == len(self.frame_tokens) else None
