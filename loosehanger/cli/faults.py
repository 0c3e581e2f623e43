"""``./lab fault``: injects faults of the catalogue, heals them, and judges guesses."""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from loosehanger.cli.columns import beside
from loosehanger.cli.playbook import only_one
from loosehanger.errors import ExitCode, LabError, NothingSetUpError, UnreachableError, WrongUseError
from loosehanger.faults.choosing import WantedSite, fitting_mirrors
from loosehanger.faults.exercises import FoundExercise, find_exercise
from loosehanger.faults.fault import Fault, read_fault
from loosehanger.faults.injecting import Healed, check_free, heal, inject
from loosehanger.faults.journal import Injection, Journal, age
from loosehanger.faults.names import fault_names, fault_titles
from loosehanger.lab.record import Lab, load_lab
from loosehanger.lab.scenario import read_scenario
from loosehanger.paths import lab_home
from loosehanger.platforms import registry
from loosehanger.suggestions import did_you_mean
from loosehanger.times import span

_LEVELS = {1: "a tool names it", 2: "one must compare", 3: "nothing plain shows it"}


def run(options: argparse.Namespace) -> int:
    """Runs the command that the command line names.

    Raises:
        WrongUseError: it is not possible; nothing was changed.
        LabError: it failed.
    """
    commands = {"list": _list, "inject": _inject, "guess": _guess, "heal": _heal, "status": _status}
    return commands[options.command](options)


def _list(options: argparse.Namespace) -> int:
    try:
        lab: Lab | None = load_lab()
    except NothingSetUpError:
        lab = None
    faults = [read_fault(name) for name in fault_names()]
    refusals = {fault.name: _refusal(lab, fault) if lab else "" for fault in faults}
    if options.json:
        found = [
            {"name": fault.name, "title": fault.title, "level": fault.level, "refused": refusals[fault.name] or None}
            for fault in faults
        ]
        print(json.dumps({"faults": found}, indent=1, ensure_ascii=False))
        return ExitCode.DONE
    width = max(map(len, refusals)) + 2
    for level, about in _LEVELS.items():
        print(f"Level {level}: {about}")
        for fault in faults:
            if fault.level == level:
                print(beside(f"  {fault.name:<{width}}", fault.title))
                if refusals[fault.name]:
                    print(beside(f"  {'':<{width}}", f"(not here: {refusals[fault.name]})"))
        print()
    print(
        beside(
            "", "./lab fault inject NAME breaks the lab so, ./lab fault heal mends it; docs/faults.md has each in full."
        )
    )
    return ExitCode.DONE


def _refusal(lab: Lab, fault: Fault) -> str:
    try:
        fitting_mirrors(lab, fault)
    except WrongUseError as error:
        return str(error)
    return ""


def _inject(options: argparse.Namespace) -> int:
    began = time.monotonic()
    lab = load_lab()
    wanted = WantedSite(options.mirror or "", options.source or "", options.target or "", options.topic or "")
    exercise = None if options.exercise is None else find_exercise(read_scenario(lab.scenario), options.exercise)
    with _alone():
        if exercise:
            injection = _exercise(lab, exercise)
        elif options.surprise is None:
            fault = read_fault(options.name)
            injection = _injected(lab, fault, wanted)
        else:
            injection = _surprise(lab, options.surprise, wanted)
    seconds = time.monotonic() - began
    if options.json:
        print(json.dumps({**_shown(lab, injection), "seconds": round(seconds, 1)}, indent=1, ensure_ascii=False))
    elif injection.hidden:
        begins = f"Exercise {exercise.number} of {exercise.count}: something" if exercise else "Something"
        print(
            f"{begins} was broken. Find it with ./lab status, ./lab watch, ./lab prove and the consoles;\n"
            "./lab fault guess NAME says whether that was it, and ./lab fault heal mends it."
        )
    else:
        print(f"{fault.title}.\n{injection.fault} is injected: {_place(lab, injection)}, in {seconds:.1f} s.")
        print(f"./lab fault heal {injection.fault} undoes it.")
    return ExitCode.DONE


def _injected(lab: Lab, fault: Fault, wanted: WantedSite) -> Injection:
    try:
        return inject(lab, lab_home(), registry, fault, wanted)
    except (LabError, KeyboardInterrupt) as error:
        if any(found.fault == fault.name for found in Journal(lab_home()).read()) and not _is_refusal(error):
            print(f"{fault.name} may be injected in part; ./lab fault heal {fault.name} undoes it", file=sys.stderr)
        raise


def _is_refusal(error: BaseException) -> bool:
    return isinstance(error, LabError) and error.exit_code == ExitCode.WRONG_USE


def _surprise(lab: Lab, level: int, wanted: WantedSite) -> Injection:
    """Injects a fault that the lab can have, and undoes those that fail.

    Raises:
        WrongUseError: the lab can have none.
    """
    journal = Journal(lab_home())
    check_free(journal.read())
    names = fault_names()
    random.SystemRandom().shuffle(names)
    known = {injection.fault for injection in journal.read()}
    for fault in map(read_fault, names):
        if fault.name in known or fault.noticed.nothing or level not in (0, fault.level):
            continue
        try:
            fitting_mirrors(lab, fault, wanted)
            return inject(lab, lab_home(), registry, fault, wanted, surprise=True)
        except LabError as error:
            # Its message would name it.
            for injection in journal.read():
                if injection.hidden:
                    heal(lab, lab_home(), registry, injection)
            if lab.unfinished:
                raise WrongUseError("a stage was begun and not finished; run it again first") from error
            if isinstance(error, UnreachableError):
                raise LabError("a cluster or a mirror's workers do not answer; ./lab status shows why") from error
    which = f" of level {level}" if level else ""
    raise WrongUseError(f"{lab.scenario} can have no further fault{which} now; ./lab fault list shows why")


def _exercise(lab: Lab, exercise: FoundExercise) -> Injection:
    """Injects an exercise's fault, which is hidden as a surprise is, and undoes it where that fails.

    Raises:
        WrongUseError: it cannot be injected now.
        LabError: it failed.
    """
    journal = Journal(lab_home())
    check_free(journal.read())
    try:
        return inject(lab, lab_home(), registry, exercise.fault, exercise.wanted, surprise=True)
    except LabError as error:
        # Its message would name it.
        for injection in journal.read():
            if injection.hidden:
                heal(lab, lab_home(), registry, injection)
        kind = WrongUseError if _is_refusal(error) else LabError
        raise kind(
            f"exercise {exercise.number} cannot be injected now; heal what ./lab fault status shows, wait until "
            "./lab status is healthy, and try again"
        ) from error


def _guess(options: argparse.Namespace) -> int:
    read_fault(options.name)
    lab, journal = load_lab(), Journal(lab_home())
    with journal.locked():
        injection = next((found for found in journal.read() if found.hidden), None)
        if injection is None:
            raise WrongUseError("there is no surprise to find; ./lab fault inject --surprise breaks something")
        right = injection.fault == options.name
        injection = replace(injection, found=right, guesses=injection.guesses + (not right))
        journal.write(injection)
    if options.json:
        print(json.dumps({"right": right, **_shown(lab, injection)}, indent=1, ensure_ascii=False))
    elif right:
        print("\n".join(_explained(lab, injection)))
    else:
        print(f"{options.name} was not it. Wrong guesses: {injection.guesses}. ./lab fault list shows what it may be.")
    return ExitCode.DONE if right else ExitCode.FAILED


def _explained(lab: Lab, injection: Injection) -> Iterator[str]:
    """Yields the lines that explain a surprise that was found."""
    fault = read_fault(injection.fault)
    noticed, plain = fault.noticed, fault.plain
    yield f"Right: {fault.title}. It was there for {span(age(injection))}: {_place(lab, injection)}."
    yield f"\n{fault.field}\n\nHow it is found:"
    for what, notice in (("./lab status", noticed.status), ("./lab watch", noticed.watch), ("an alert", noticed.alert)):
        if notice:
            yield f"  {what}: '{notice.says}' within {notice.within} s"
    if noticed.proof:
        says = f": '{noticed.proof.says}'" if noticed.proof.says else ""
        yield f"  ./lab prove: {noticed.proof.verdict}{says}"
    yield f"  the resource's status: {plain.resource}\n  Connect's REST interface: {plain.connect}"
    yield f"  JMX metrics: {plain.metrics}\n\nWhat to do: {fault.remedy}"
    yield f"\n./lab fault heal {fault.name} mends it."


def _heal(options: argparse.Namespace) -> int:
    lab, journal = load_lab(), Journal(lab_home())
    with _alone():
        injected = journal.read()
        chosen = [found for found in injected if options.name is None or _is_named(found, options.name)]
        if options.name is not None and not chosen:
            hint = did_you_mean(options.name, [found.fault for found in injected if not found.hidden])
            raise WrongUseError(f"'{options.name}' is not injected{hint or '; ./lab fault status shows what is'}")
        healed, failed = _heal_all(lab, chosen, quiet=options.json)
    if options.json:
        found = [
            {
                **_shown(lab, replace(one.injection, found=True)),
                "healed_seconds": round(one.seconds, 1),
                "mirror_gone": one.gone,
            }
            for one in healed
        ]
        print(json.dumps({"healed": found}, indent=1, ensure_ascii=False))
    elif not chosen:
        print("No fault is injected.")
    if failed:
        raise LabError("; ".join(dict.fromkeys(map(str, failed))))
    return ExitCode.DONE


def _heal_all(lab: Lab, chosen: Sequence[Injection], *, quiet: bool) -> tuple[list[Healed], list[LabError]]:
    """Heals faults, the last one first; what fails while another fault is there is tried again without that one.

    Returns:
        Those that are healed, and why the others are not.
    """
    healed: list[Healed] = []
    left, tried = list(reversed(chosen)), 0
    errors: list[LabError] = []
    while len(left) not in (0, tried):
        tried, waiting, errors = len(left), left, []
        left = []
        for injection in waiting:
            try:
                healed.append(heal(lab, lab_home(), registry, injection))
            except LabError as error:
                errors.append(error)
                left.append(injection)
                continue
            if not quiet:
                print(_healed(lab, healed[-1]), flush=True)
    return healed, errors


def _is_named(injection: Injection, name: str) -> bool:
    return not injection.hidden and injection.fault == name


def _healed(lab: Lab, healed: Healed) -> str:
    injection = healed.injection
    title = fault_titles().get(injection.fault, "no longer in the catalogue")
    if healed.gone:
        return f"{injection.fault} ({title}): its mirror is not in the lab any more; nothing is left to undo."
    was = "The surprise was " if injection.hidden else ""
    return (
        f"{was}{injection.fault} ({title}): healed in {healed.seconds:.1f} s, after {span(healed.after)}; "
        f"{_place(lab, injection)}."
    )


def _status(options: argparse.Namespace) -> int:
    lab = load_lab()
    if options.json:
        print(json.dumps(document(lab), indent=1, ensure_ascii=False))
        return ExitCode.DONE
    injected = Journal(lab_home()).read()
    for injection in injected:
        part = "" if injection.complete else ", and was interrupted; ./lab fault heal undoes it"
        if injection.hidden:
            print(f"A surprise has been there for {span(age(injection))}; wrong guesses: {injection.guesses}{part}.")
        else:
            there = f"has been there for {span(age(injection))}"
            print(f"{injection.fault} {there}: {_place(lab, injection)}{part}.")
    if not injected:
        print("No fault is injected.")
    return ExitCode.DONE


def document(lab: Lab) -> dict[str, Any]:
    """Returns what ``./lab fault status --json`` prints.

    Raises:
        LabError: the list of injected faults cannot be read.
    """
    return {"faults": [_shown(lab, one) for one in Journal(lab_home()).read()]}


def _shown(lab: Lab, injection: Injection) -> dict[str, Any]:
    """Returns what may be shown of an injected fault, for JSON."""
    mirror = None if injection.hidden else next((one for one in lab.mirrors if one.id == injection.mirror), None)
    return {
        "fault": None if injection.hidden else injection.fault,
        "surprise": injection.surprise,
        "guesses": injection.guesses,
        "complete": injection.complete,
        "age_seconds": round(age(injection), 1),
        "mirror": f"{mirror.region}/{mirror.name}" if mirror else None,
        "source": mirror.source if mirror else None,
        "target": mirror.target if mirror else None,
        "topic": None if injection.hidden else injection.topic,
    }


def _place(lab: Lab, injection: Injection) -> str:
    mirror = next((one for one in lab.mirrors if one.id == injection.mirror), None)
    if mirror is None:
        return f"the mirror {injection.mirror}, which is not in the lab any more"
    return f"the mirror {mirror.region}/{mirror.name} from {mirror.source} to {mirror.target}, topic {injection.topic}"


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Keeps set-ups, clean-ups and other injections out.

    Raises:
        LabError: one is running.
    """
    with only_one(lab_home(), shared=True), Journal(lab_home()).locked():
        yield
