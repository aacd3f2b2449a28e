"""Pending targets of this device class: find or build the model, look at it, keep the findings."""

from collections.abc import Callable
from pathlib import Path
from uuid import UUID

from advisor.errors import RooftuneError, Unavailable
from db import engines, targets
from db.session import transaction
from db.tables import TargetRow
from db.targets import Inspected
from probes.demo_model import demo_model
from probes.engines import Interpreter
from probes.targets import (
    DEMO,
    allowed_folder,
    inspect_model,
    refuse_changed,
    refuse_escapes,
)
from probes.workplace import Workplace


def inspect_next(place: Workplace, take: Callable[[str, UUID], None]) -> bool:
    """Inspect the oldest pending target; whether there was one. Ends ready or failed(reason)."""
    with transaction(place.sessions) as session:
        waiting = targets.pending(session, place.device.device_class)
    if not waiting:
        return False
    target = waiting[0]
    take("target", target.id)
    try:
        found = inspected(place, target)
    except RooftuneError as error:
        if place.stop.is_set():
            return False  # it stays pending for the next agent
        with transaction(place.sessions) as session:
            row = targets.one(session, target.id, None)
            targets.mark_failed(session, row, str(error), actor=place.actor, now=place.now())
        return True
    with transaction(place.sessions) as session:
        row = targets.one(session, target.id, None)
        targets.mark_ready(session, row, found, actor=place.actor, now=place.now())
    return True


def inspected(place: Workplace, target: TargetRow) -> Inspected:
    """What the model folder of a target holds; every trouble is a `RooftuneError`."""
    if place.device.facts is None:
        raise Unavailable("the device was not measured yet", "see the agent's log")
    folder = model_folder(place, target)
    found = inspect_model(folder, chat_template=target.functional.chat_template)
    return Inspected(
        model_path=str(found.path),
        model_digest=found.digest,
        shape=found.shape,
        device=place.device.facts,
        tokenizer=found.tokenizer,
        tokenizer_digest=found.tokenizer_digest,
        chat_template=found.chat_template,
        template_digest=found.template_digest,
    )


def model_folder(place: Workplace, target: TargetRow) -> Path:
    """The allowed folder of the target's model; the demo model is built at its first use."""
    settings = place.settings
    if target.model != DEMO:
        folder = allowed_folder(target.model, settings.allowed_roots)
        refuse_escapes(folder, settings.allowed_roots)
        return folder
    with transaction(place.sessions) as session:
        engine = engines.on_host(session, target.engine_id, settings.host_name)
    return demo_model(
        Interpreter(python=Path(engine.interpreter)),
        settings.demo_model,
        env=place.base_env,
        stopped=place.stop.is_set,
        progress=lambda phrase: place.event("target", target.id, "progress", {"phase": phrase}),
    )


def unfit(place: Workplace, target: TargetRow) -> str | None:
    """Why this host cannot go on with a study of `target`; None when it can.

    It needs an engine of the same version, build and flags, and the very same model files under its
    own allowed folders; the demo model is built where it is missing.
    """
    try:
        with transaction(place.sessions) as session:
            engines.on_host(session, target.engine_id, place.settings.host_name)
        refuse_changed(model_folder(place, target), target.model_digest)
    except RooftuneError as error:
        return str(error)
    return None
