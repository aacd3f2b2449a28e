"""All formats and all refusals, in the order in which they are asked: the more special first."""

from advisor.traffic.formats.azure import AZURE
from advisor.traffic.formats.burstgpt import BURSTGPT
from advisor.traffic.formats.format import Format, Refusal
from advisor.traffic.formats.guidellm import GUIDELLM
from advisor.traffic.formats.hash_trace import HASH_TRACES
from advisor.traffic.formats.helicone import HELICONE
from advisor.traffic.formats.inference_perf import INFERENCE_PERF
from advisor.traffic.formats.langfuse import LANGFUSE
from advisor.traffic.formats.litellm import LITELLM
from advisor.traffic.formats.openai_batch import OPENAI_BATCH_INPUT, OPENAI_BATCH_OUTPUT
from advisor.traffic.formats.openai_logs import OPENAI_LOGS
from advisor.traffic.formats.otel_genai import OTEL_GENAI
from advisor.traffic.formats.prompts import PROMPTS
from advisor.traffic.formats.refused import REFUSED
from advisor.traffic.formats.rooftune import OWN
from advisor.traffic.formats.sharegpt import SHAREGPT
from advisor.traffic.formats.vllm_bench import VLLM_BENCH

FORMATS: tuple[Format, ...] = (
    *OWN,
    AZURE,
    BURSTGPT,
    *HASH_TRACES,
    VLLM_BENCH,
    GUIDELLM,
    INFERENCE_PERF,
    HELICONE,
    LITELLM,
    LANGFUSE,
    OTEL_GENAI,
    OPENAI_BATCH_INPUT,
    OPENAI_BATCH_OUTPUT,
    SHAREGPT,
    PROMPTS,
    OPENAI_LOGS,
)
REFUSALS: tuple[Refusal, ...] = REFUSED
