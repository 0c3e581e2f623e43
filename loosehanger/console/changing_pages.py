"""The pages for changes of settings, connectors and links: what would change, a page that asks once, and the change."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Query
from fastapi.responses import HTMLResponse, Response
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from loosehanger.console.api import ContextOf, SessionOf
from loosehanger.console.confirming import (
    ASKED,
    Region,
    Topic,
    compared,
    confirm,
    made,
    topic_page,
)
from loosehanger.console.context import Context
from loosehanger.console.distances import PRESETS
from loosehanger.console.links import LinkState
from loosehanger.console.mirrors import Action
from loosehanger.console.models import LinkChange, SettingName, SettingValue
from loosehanger.console.pages import MAY
from loosehanger.console.views import settings_of
from loosehanger.errors import WrongUseError

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)
control_room = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)
BOTH_WAYS, ONE_WAY = "both", "to"
"""Between the regions of a link's form: both directions, or the one from the first to the second."""
_QUESTIONS = {"cut": "Cut", "silent": "Silence", "heal": "Heal", "forget": "Forget the connections of"}
_CLOSES = ("cut", "silent")
Word = Annotated[str, Field(max_length=20)]


class SettingForm(BaseModel):
    """A setting to change, or to reset to its default."""

    region: Region
    topic: Topic
    name: Annotated[str, Field(max_length=100)]
    value: Annotated[str, Field(max_length=4000)] = ""
    unset: bool = False

    def change(self) -> dict[str, str | None]:
        """The setting, with None for its default.

        Raises:
            WrongUseError: the name is not a setting's, or the value is missing.
        """
        try:
            TypeAdapter(SettingName).validate_python(self.name)
            TypeAdapter(SettingValue).validate_python(self.value)
        except ValidationError as error:
            raise WrongUseError(f"'{self.name}' is not a setting's name, for example retention.ms") from error
        if not self.unset and not self.value:
            raise WrongUseError(f"{self.name} needs a value; to reset it, choose Back to default")
        return {self.name: None if self.unset else self.value}


class ConnectorForm(BaseModel):
    """What to do with a connector."""

    region: Region
    mirror: Annotated[str, Field(max_length=63)]
    connector: Annotated[str, Field(max_length=300)]
    action: Action


class LinkForm(BaseModel):
    """What to set of a link or of one direction of it, or what to do with it."""

    ways: Annotated[str, Field(max_length=140)]
    preset: Annotated[str, Field(max_length=60)] = ""
    delay: Word = ""
    jitter: Word = ""
    rate: Word = ""
    action: Word = ""

    def change(self) -> tuple[str, str, LinkChange]:
        """The link's regions, and its change; a preset sets the delay that is left empty.

        Raises:
            WrongUseError: the form does not describe a change.
        """
        one, _, rest = self.ways.partition(" ")
        sign, _, other = rest.partition(" ")
        city_pair = next((found for found in PRESETS if found.name == self.preset), None)
        if sign not in (BOTH_WAYS, ONE_WAY) or (self.preset and city_pair is None):
            raise WrongUseError("this link or distance does not exist; choose one of the form's")
        delay = self.delay or (city_pair.delay if city_pair else "")
        words = {"delay": delay, "jitter": self.jitter, "rate": self.rate, "action": self.action}
        given = {name: text.strip() for name, text in words.items() if text.strip()}
        if not given:
            raise WrongUseError("nothing would change; give a distance, a delay, a jitter or a rate")
        try:
            return one, other, LinkChange.model_validate({**given, "one_way": sign == ONE_WAY})
        except ValidationError as error:
            raise WrongUseError(f"'{self.action}' is not an action of a link") from error


@router.get("/confirm/settings", dependencies=ASKED)
async def ask_settings(context: ContextOf, session: SessionOf, asked: Annotated[SettingForm, Query()]) -> Response:
    """Asks whether to change a setting of a topic, or to reset it to its default."""
    region, topic, wanted = asked.region, asked.topic, asked.change()
    refused = context.operations.why_not(region, topic)
    rows, follow = ([], []) if refused else await context.service.topics.preview(region, topic, wanted)
    given = {"unset": "true"} if asked.unset else {"value": asked.value}
    return await confirm(
        context, session, f"Change {asked.name} of {topic} in {region}?", "/operate/settings", "Change",
        topic_page(topic), {"region": region, "topic": topic, "name": asked.name, **given},
        table=compared("Setting", rows) if rows else None, warnings=follow, refused=refused,
    )  # fmt: skip


@router.post("/operate/settings", dependencies=MAY)
async def change_settings(context: ContextOf, session: SessionOf, form: Annotated[SettingForm, Form()]) -> Response:
    """Changes it."""
    work = context.operations.change_settings(session.user, form.region, form.topic, form.change())
    return await made(context, session, work, topic_page(form.topic), topic_page(form.topic))


@router.get("/confirm/connector", dependencies=ASKED)
async def ask_connector(context: ContextOf, session: SessionOf, asked: Annotated[ConnectorForm, Query()]) -> Response:
    """Asks whether to pause, resume or restart a connector."""
    region, mirror, connector, action = asked.region, asked.mirror, asked.connector, asked.action
    rows, warnings = await context.service.mirrors.preview(region, mirror, connector, action)
    return await confirm(
        context, session, f"{action.capitalize()} {connector} of {mirror}?", "/operate/connector",
        action.capitalize(), "/mirrors", asked.model_dump(),
        table=compared("Part", rows), warnings=warnings,
        refused=context.operations.why_not_act(region, mirror, action),
    )  # fmt: skip


@router.post("/operate/connector", dependencies=MAY)
async def act(context: ContextOf, session: SessionOf, form: Annotated[ConnectorForm, Form()]) -> Response:
    """Pauses, resumes or restarts it."""
    work = context.operations.act(session.user, form.region, form.mirror, form.connector, form.action)
    return await made(context, session, work, "/mirrors", "/mirrors")


@control_room.get("/confirm/link", dependencies=ASKED)
async def ask_link(context: ContextOf, session: SessionOf, asked: Annotated[LinkForm, Query()]) -> Response:
    """Asks whether to set, cut or heal a link."""
    one, other, change = asked.change()
    now, then = await context.links.preview(one, other, change)
    fields = change.model_dump(include={"delay", "jitter", "rate", "action"}, exclude_none=True)
    return await confirm(
        context, session, f"{_QUESTIONS.get(change.action or '', 'Set')} the link between {one} and {other}?",
        "/operate/link", _QUESTIONS.get(change.action or "", "Set").split()[0], "/", {"ways": asked.ways, **fields},
        table=compared("Direction", _directions(now, then)), warnings=_effects(context, one, other, change),
    )  # fmt: skip


def _directions(now: LinkState, then: LinkState) -> list[tuple[str, str, str]]:
    def text(state: LinkState, number: int) -> str:
        return "cut" if state.refused else ", ".join(settings_of(state.directions[number])) or "unshaped"

    return [
        (f"{way.source} → {way.target}", text(now, number), text(then, number))
        for number, way in enumerate(now.directions)
    ]


def _effects(context: Context, one: str, other: str, change: LinkChange) -> list[str]:
    """What a change does to the traffic and to the mirrors whose records cross the link."""
    ways = [(one, other)] if change.one_way else [(one, other), (other, one)]
    names = sorted(
        {route.name for route in context.settings.routes if (route.source, route.target) in ways}
        if change.action not in _CLOSES
        else {route.name for route in context.settings.routes if {route.source, route.target} == {one, other}}
    )
    effects = ["It takes effect at once, for open connections too"]
    if change.action == "cut":
        effects = ["Open connections are closed, and new ones are refused"]
    elif change.action == "silent":
        effects = ["Connections stay open and carry nothing: clients notice by their time limits"]
    if change.action in _CLOSES:
        return [*effects, *(f"{name} copies nothing until the link is healed, and its lag grows" for name in names)]
    return [*effects, *([f"Mirrors whose records cross it: {', '.join(names)}"] if names else [])]


@control_room.post("/operate/link", dependencies=MAY)
async def set_link(context: ContextOf, session: SessionOf, form: Annotated[LinkForm, Form()]) -> Response:
    """Sets delay, jitter and rate of a link or of one direction of it, cuts it, or heals it."""
    one, other, change = form.change()
    return await made(context, session, context.operations.change_link(session.user, one, other, change), "/", "/")
