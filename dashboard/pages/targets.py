"""Targets: a model on a device with an engine, its arithmetic and the measured device."""

import streamlit as st

from advisor.hardware import DeviceFacts
from advisor.llm import ModelShape
from advisor.recommender.phrases import span_text
from advisor.serving import FunctionalSettings
from advisor.states import TargetState
from api.client import DeviceView, EngineView, TargetView
from dashboard.app import run
from dashboard.listing import figure, grid, newest, pick, show, table
from dashboard.model_rows import layer_rows, weights_note
from dashboard.session import client, readable_errors, say
from dashboard.settings import DashboardSettings
from dashboard.wording import (
    NOT_SAID,
    amount_text,
    bandwidth_text,
    count_text,
    flops_text,
    origin_text,
    plain,
    ridge,
    size_text,
    time_text,
)

NEWEST = ""
KV_DTYPE_BYTES = 2


def page() -> None:
    """Form, one target, engines and devices."""
    st.title("Targets")
    st.caption(
        "A target is a model with the engine and the device class that shall serve it. An agent"
        " reads the model and measures its device once."
    )
    engines, devices = newest(client().engines), newest(client().devices)
    targets = newest(client().targets)
    with st.expander("New target", expanded=not targets):
        _create(engines, devices)
    if targets:
        chosen = pick("target", targets, lambda item: f"{item.name}, {item.state.value}")
        pending = chosen.state is TargetState.PENDING
        poll_s = DashboardSettings().dashboard_poll_s
        st.fragment(_one, run_every=poll_s if pending else None)(chosen.id, chosen.state)
    else:
        st.info("No target yet. The word `demo` names a small model that is built on first use.")
    with st.expander("Engines and devices"):
        _machinery(engines, devices)


def _create(engines: list[EngineView], devices: list[DeviceView]) -> None:
    versions = {NEWEST: "the newest installed"}
    versions |= {item.id: f"{item.version} ({item.build}) on {item.host}" for item in engines}
    classes = [NEWEST, *sorted({item.device_class for item in devices})]
    with st.form("target", border=False):
        name = st.text_input("Name", max_chars=80, placeholder="my-model")
        model = st.text_input(
            "Model",
            value="demo",
            help="A folder below the agent's allowed model folders, or the word demo.",
        )
        left, right = st.columns(2)
        engine = left.selectbox("Engine", list(versions), format_func=lambda key: versions[key])
        device = right.selectbox("Device class", classes, format_func=lambda key: key or "any")
        st.markdown("**Functional settings**, the same in every trial; empty keeps vLLM's own.")
        settings = _functional()
        asked = st.form_submit_button("Create", type="primary")
    if asked:
        with readable_errors():
            made = client().create_target(
                name=name.strip(),
                model=model.strip(),
                engine_id=engine or None,
                device_class=device or None,
                functional=settings,
            )
            show("target", made.id)
            say(f"An agent now reads the model of {plain(made.name)}.")
            st.rerun()


def _functional() -> FunctionalSettings:
    cells = st.columns(2)
    longest = cells[0].number_input("Longest context (tokens)", min_value=1, value=None, step=1)
    space = cells[1].number_input("KV cache of a CPU engine (GiB)", min_value=1, value=None, step=1)
    tools = cells[0].text_input("Tool call parser")
    reasoning = cells[1].text_input("Reasoning parser")
    template = st.text_area("Chat template (Jinja)", height=80)
    eager = st.checkbox("Eager mode: no compilation, faster start")
    return FunctionalSettings(
        max_model_len=longest,
        kv_cache_space_gib=space,
        tool_call_parser=tools.strip() or None,
        reasoning_parser=reasoning.strip() or None,
        chat_template=template or None,
        enforce_eager=eager,
    )


def _one(target_id: str, shown: TargetState) -> None:
    """Draws itself again while the target is pending; a new state redraws the page."""
    with readable_errors():
        target = client().target(target_id)
        if target.state is not shown:
            st.rerun()
        _target(target)


def _target(target: TargetView) -> None:
    st.header(plain(target.name))
    st.caption(
        f"model {plain(target.model)} on {plain(target.device_class)},"
        f" created {time_text(target.created_at)}"
    )
    match target.state:
        case TargetState.PENDING:
            st.info("An agent is reading the model and measuring its device.")
        case TargetState.FAILED:
            st.error(f"The target failed: {plain(target.error or 'the agent gave no reason')}")
        case TargetState.READY:
            st.success("Ready for studies.")
    _functional_table(target.functional)
    if target.shape is not None:
        _model(target.shape)
    if target.device is not None:
        _device(target.device)
    if target.model_digest is not None:
        st.caption(f"model digest `{target.model_digest}`")


def _functional_table(settings: FunctionalSettings) -> None:
    limit = "the model's own" if settings.max_model_len is None else str(settings.max_model_len)
    space = settings.kv_cache_space_gib
    table(
        [
            {
                "longest context": limit,
                "KV cache (CPU)": "the agent's own" if space is None else f"{space} GiB",
                "compilation": "off (eager)" if settings.enforce_eager else "on",
                "tool call parser": settings.tool_call_parser or "none",
                "reasoning parser": settings.reasoning_parser or "none",
                "chat template": "given" if settings.chat_template else "the model's own",
            }
        ]
    )


def _model(shape: ModelShape) -> None:
    st.subheader("Model arithmetic")
    st.caption(
        "From the model's config.json alone, without measurement; exact but for what is noted."
    )
    for note in shape.notes:
        st.warning(plain(note))
    cells = st.columns(4)
    with cells[0]:
        used = shape.active_parameters
        active = f", {amount_text(used)} used per token" if shape.is_mixture else ""
        figure("Parameters", amount_text(shape.parameters), f"{shape.parameters:,}{active}")
    with cells[1]:
        figure("Weights", size_text(shape.weight_bytes()), weights_note(shape))
    with cells[2]:
        kv_bytes = shape.kv_bytes_per_token(KV_DTYPE_BYTES)
        note = f"{kv_bytes:,} B: keys and values of all layers in 16 bit"
        figure("KV cache per token", size_text(kv_bytes), f"{note}{_state_note(shape)}")
    with cells[3]:
        note = "2 per matrix weight, without attention"
        figure("Work per token", f"{amount_text(shape.flops_per_token())}FLOP", note)
    table(
        [
            {
                "architecture": shape.architecture,
                "layers": str(shape.num_layers),
                "hidden": str(shape.hidden_size),
                "vocabulary": count_text(shape.vocab_size),
                "longest context": count_text(shape.max_position_embeddings),
            }
        ]
    )
    table(layer_rows(shape))


def _state_note(shape: ModelShape) -> str:
    state_bytes = shape.state_bytes(KV_DTYPE_BYTES)
    return f"; {size_text(state_bytes)} of state per request" if state_bytes else ""


def _device(device: DeviceFacts) -> None:
    st.subheader("Device")
    threads = f", {device.threads} threads" if device.threads else ""
    st.caption(
        f"{plain(device.name)}: {device.kind}{threads}, {size_text(device.memory_bytes)} of memory."
        " The ridge is the arithmetic per byte below which a step waits for memory."
    )
    bandwidth = device.bandwidth_bytes_per_s
    figure("Read bandwidth", bandwidth_text(bandwidth), origin_text(bandwidth))
    table(
        [
            {
                "arithmetic": dtype,
                "matrix rate": flops_text(rate),
                "ridge": span_text(ridge(device, dtype), unit="FLOP/B"),
                "from": origin_text(rate),
            }
            for dtype, rate in sorted(device.matrix_rate_flops_per_s.items())
        ]
    )


def _machinery(engines: list[EngineView], devices: list[DeviceView]) -> None:
    if not engines:
        st.info("No engine is registered; an agent registers its engine when it starts.")
    grid(
        [
            {
                "engine": item.name,
                "version": item.version,
                "build": item.build,
                "host": item.host,
                "flags": str(item.flags),
                "interpreter": item.interpreter,
            }
            for item in engines
        ]
    )
    grid(
        [
            {
                "device": item.name,
                "class": item.device_class,
                "host": item.host,
                "agent last seen": time_text(item.agent_seen_at) or "never",
                "busy with": item.busy_with or "nothing",
                "bandwidth": NOT_SAID
                if item.facts is None
                else bandwidth_text(item.facts.bandwidth_bytes_per_s),
            }
            for item in devices
        ]
    )


if __name__ == "__main__":
    run(page)
