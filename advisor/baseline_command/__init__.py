"""The user's own ``vllm serve`` command as typed fields."""

from advisor.baseline_command.command import MOST_LETTERS, ParsedBaseline, parse_serve_command

__all__ = ["MOST_LETTERS", "ParsedBaseline", "parse_serve_command"]
