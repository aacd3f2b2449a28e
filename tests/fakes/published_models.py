"""Shapes of published models, each read from its configuration in `model_configs`."""

from advisor.llm import read_config
from tests.fakes import model_configs as configs

DEEPSEEK_V3 = read_config(configs.DEEPSEEK_V3)
GEMMA3_27B = read_config(configs.GEMMA3_27B)
GPT_OSS_20B = read_config(configs.GPT_OSS_20B)
LLAMA_2_7B = read_config(configs.LLAMA_2_7B)
LLAMA_31_70B = read_config(configs.LLAMA_31_70B)
LLAMA_31_8B = read_config(configs.LLAMA_31_8B)
LLAMA_68M = read_config(configs.LLAMA_68M)
MIXTRAL_8X7B = read_config(configs.MIXTRAL_8X7B)
QWEN3_30B_A3B = read_config(configs.QWEN3_30B_A3B)
QWEN3_32B = read_config(configs.QWEN3_32B)
QWEN3_8B = read_config(configs.QWEN3_8B)
QWEN3_NEXT_80B = read_config(configs.QWEN3_NEXT_80B)
