"""Images take memory three times: tower, cache tokens, and the profile run at start (2.3).

vLLM profiles with as many images of the largest size as a prompt may carry (case M-15), and a
token of an image costs as much cache as any other (case M-11).
"""

import math
from dataclasses import dataclass

from advisor.errors import InvalidInput


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageBudget:
    """Images of one prompt: `worst_tokens` is what the processor may make of one at most.

    `max_pixels` caps them in the engine's processor, with `pixels_per_token` for the model; without
    both the worst case is what the engine reserves.
    """

    images_per_prompt: int
    worst_tokens: int
    max_pixels: int | None = None
    pixels_per_token: int | None = None

    def __post_init__(self) -> None:
        if self.images_per_prompt < 0 or self.worst_tokens < 1:
            raise InvalidInput("images", "are 0 or more of at least one token")
        if self.max_pixels is not None and not self.pixels_per_token:
            raise InvalidInput("images.pixels_per_token", "is needed to turn pixels into tokens")

    @property
    def tokens_per_image(self) -> int:
        """Tokens that the engine counts for one image of the largest allowed size."""
        if self.max_pixels is None or self.pixels_per_token is None:
            return self.worst_tokens
        return min(self.worst_tokens, math.ceil(self.max_pixels / self.pixels_per_token))

    @property
    def prompt_tokens(self) -> int:
        """Tokens that all images of one prompt take at most."""
        return self.images_per_prompt * self.tokens_per_image

    def fits(self, max_model_len: int) -> bool:
        """Whether such a prompt is shorter than the model: else profiling fails at start."""
        return self.prompt_tokens < max_model_len

    def encoder_bytes(self, hidden_size: int, element_bytes: int, batch_tokens: int) -> int:
        """Bytes of encoded images that the profile run holds: those of one batch or one image."""
        return max(batch_tokens, self.tokens_per_image) * hidden_size * element_bytes

    def largest_fitting_pixels(self, max_model_len: int) -> int | None:
        """Cap of pixels at which all images fit; None where the model's pixels are not known."""
        if self.pixels_per_token is None or not self.images_per_prompt:
            return None
        return (max_model_len - 1) // self.images_per_prompt * self.pixels_per_token


def image_cache_bytes(tokens_per_image: int, bytes_per_token: int) -> int:
    """Cache of one image (case M-11)."""
    return tokens_per_image * bytes_per_token
