"""Multimodal configs: the text model inside, the tower beside it, what an image takes."""

import pytest

from advisor.llm import read_config
from tests.fakes import model_configs as published


def test_a_text_part_saved_as_a_difference_is_read_with_its_class_defaults() -> None:
    """LLaVA 1.5 writes neither hidden size nor layers of its Llama."""
    shape = read_config(published.LLAVA_15_7B)

    assert (shape.hidden_size, shape.num_layers, shape.dtype) == (4096, 32, "float16")
    assert shape.parameters + shape.tower_parameters == 7_063_427_072
    assert shape.image_tokens == 576


def test_gemma_3_counts_its_siglip_tower() -> None:
    """To the last parameter of the published checkpoint; 256 tokens an image."""
    shape = read_config(published.GEMMA3_27B)

    assert shape.parameters + shape.tower_parameters == 27_432_406_640
    assert shape.image_tokens == 256


def test_mistral_3_counts_its_pixtral_tower() -> None:
    """Patches are merged before the projector; images have no fixed size."""
    shape = read_config(
        {
            "architectures": ["Mistral3ForConditionalGeneration"],
            "model_type": "mistral3",
            "text_config": {
                "model_type": "mistral",
                "hidden_size": 5120,
                "intermediate_size": 32768,
                "num_hidden_layers": 40,
                "head_dim": 128,
                "vocab_size": 131072,
                "sliding_window": None,
            },
            "vision_config": {"model_type": "pixtral", "image_size": 1540, "patch_size": 14},
            "torch_dtype": "bfloat16",
        }
    )

    assert shape.parameters + shape.tower_parameters == 24_011_361_280
    assert shape.image_tokens is None


def test_a_flat_config_of_qwen2_vl_is_text_and_tower() -> None:
    """Its text keys stand beside `vision_config`, as its makers saved it."""
    shape = read_config(
        {
            **published.decoder("Qwen2VLForConditionalGeneration", 1536, 28, 12, 2, 8960, 151936),
            "model_type": "qwen2_vl",
            "tie_word_embeddings": True,
            "vision_config": {"depth": 32, "embed_dim": 1280, "hidden_size": 1536},
        }
    )

    assert shape.parameters + shape.tower_parameters == 2_208_985_600


def test_qwen25_vl_has_gated_networks_in_its_tower() -> None:
    """The 3 B model, to the last parameter."""
    shape = read_config(
        {
            **published.decoder(
                "Qwen2_5_VLForConditionalGeneration", 2048, 36, 16, 2, 11008, 151936
            ),
            "model_type": "qwen2_5_vl",
            "tie_word_embeddings": True,
            "vision_config": {"depth": 32, "hidden_size": 1280, "out_hidden_size": 2048},
        }
    )

    assert shape.parameters + shape.tower_parameters == 3_754_622_976


@pytest.mark.parametrize(
    "vision, counted",
    [({"model_type": "odd", "hidden_size": 1024, "num_hidden_layers": 24}, True), ({}, False)],
)
def test_an_unknown_tower_is_noted(vision: dict[str, object], *, counted: bool) -> None:
    """Counted as a plain one, or not at all: the shape says which."""
    shape = read_config({**published.LLAVA_15_7B, "model_type": "odd", "vision_config": vision})

    assert len(shape.notes) == 1
    assert "tower" in shape.notes[0] or "not counted" in shape.notes[0]
    assert (shape.tower_parameters > 3e8) is counted
