"""Compares a declaration file with the entities of a store, and plans: create what is missing, update what differs.

    file ──▶ wanted entities (shapes.py) ──▶ plan (steps, conflicts) ──▶ declare_entities

Nothing is ever deleted. Applying is idempotent: the same file again changes nothing, and after a crash it does the
remaining steps. A plan can be shown before it is applied. It names all conflicts, and a plan with conflicts is not
applied at all.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from unibus.bus.entities.entities import rules_of_info
from unibus.bus.entities.shapes import WantedEntity, wanted_entities
from unibus.core.lifecycle.commands import Declare
from unibus.core.lifecycle.state.changes import Settings
from unibus.core.lifecycle.state.entity import KIND_NAMES
from unibus.core.lifecycle.state.rules import Rule, text_of
from unibus.core.lifecycle.state.settings import shown
from unibus.errors import EntityExists, UsageError
from unibus.stores.seam.store import EntityInfo, Store

CREATE: Final = "create"
UPDATE: Final = "update"
SAME: Final = "same"
# Those with `fixed` in core/lifecycle/state/settings.py, which the store does not change: reported here, with all other
# conflicts, before anything is applied.
_FIXED: Final = ("requires_session", "enable_partitioning")
_FORWARDS: Final = ("forward_to", "forward_dead_letters_to")


@dataclass(frozen=True)
class DeclareStep:
    """The change of one entity. `settings` are the new values, `before` has the present values of the same settings."""

    action: str
    name: str
    kind: int
    settings: Settings = field(repr=False)
    before: Settings = field(default_factory=dict, repr=False)

    def as_record(self) -> dict[str, object]:
        """For output; secrets are left out."""
        return {
            "action": self.action,
            "name": self.name,
            "kind": KIND_NAMES[self.kind],
            "settings": shown(self.settings),
            "before": shown(self.before),
        }


@dataclass(frozen=True)
class DeclarePlan:
    steps: list[DeclareStep]
    conflicts: list[str]


def read_entity_file(path: str | Path) -> list[WantedEntity]:
    """The entities that the file declares. UsageError if it cannot be read, ConfigInvalid for wrong content."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}", "name a readable JSON file") from error
    try:
        return wanted_entities(content)
    except UsageError as error:
        # The same class with the path in front: ConfigInvalid stays ConfigInvalid.
        raise type(error)(f"{path}, {error.what}", error.hint) from error


def planned(infos: list[EntityInfo], wanted: list[WantedEntity]) -> DeclarePlan:
    # Case-folded, as the store compares names: `Orders` in the file is the `orders` of the store.
    here = {info.name.casefold(): info for info in infos}
    # Forwarding may target an entity that the same file creates.
    names = {*here, *[each.name.casefold() for each in wanted]}
    plan = DeclarePlan([], [])
    for each in wanted:
        # All conflicts are collected before anything is applied, so that the operator can correct the file once.
        plan.conflicts.extend(_missing_targets(each, names))
        info = here.get(each.name.casefold())
        if info is None:
            settings: Settings = dict(each.settings)
            if each.rules is not None:
                settings["rules"] = text_of(each.rules)
            plan.steps.append(DeclareStep(CREATE, each.name, each.kind, settings))
        elif info.kind != KIND_NAMES[each.kind]:
            plan.conflicts.append(
                f"{each.name!r} is a {info.kind} in the store and a {KIND_NAMES[each.kind]} in the file"
            )
        else:
            _compare(plan, each, info)
    return plan


def _compare(plan: DeclarePlan, wanted: WantedEntity, info: EntityInfo) -> None:
    # Only named settings that differ. What the file does not name keeps its present value, which may have been set by
    # hand.
    settings: Settings = {name: value for name, value in wanted.settings.items() if info.settings.get(name) != value}
    for name in _FIXED:
        if name in settings:
            plan.conflicts.append(
                f"{name} of {info.name!r} is {info.settings.get(name)!r} in the store"
                f" and {settings[name]!r} in the file, and cannot be changed"
            )
    # Rules are compared by name and content: their order has no meaning, and their creation times are not in the file.
    if wanted.rules is not None:
        now = rules_of_info(info)
        if _by_name(now) != _by_name(wanted.rules):
            settings["rules"] = _with_creation_times(now, wanted.rules)
    before: Settings = {name: info.settings.get(name) for name in settings}
    # The name as the store has it: a file that spells it in another case must not rename the entity.
    plan.steps.append(DeclareStep(UPDATE if settings else SAME, info.name, wanted.kind, settings, before))


def _missing_targets(wanted: WantedEntity, names: set[str]) -> list[str]:
    """Conflicts for targets of forwarding that exist neither in the store nor in the file."""
    targets = [(name, wanted.settings.get(name)) for name in _FORWARDS]
    return [
        f"{name} of {wanted.name!r} is {target!r}, which is neither in the store nor in the file"
        for name, target in targets
        if isinstance(target, str) and target.casefold() not in names
    ]


def _by_name(rules: "list[Rule] | tuple[Rule, ...]") -> dict[str, Rule]:
    return {rule.name.casefold(): rule for rule in rules}


def _with_creation_times(now: list[Rule], wanted: tuple[Rule, ...]) -> str:
    """The wanted rules as text; a rule that exists already keeps its creation time."""
    known = _by_name(now)
    rules = []
    for rule in wanted:
        old = known.get(rule.name.casefold())
        rules.append(Rule(rule.name, rule.condition, rule.action, 0 if old is None else old.created_ns))
    return text_of(rules)


def declare_entities(store: Store, plan: DeclarePlan) -> None:
    """Apply a plan. EntityExists names all conflicts; nothing is changed then."""
    if plan.conflicts:
        raise EntityExists(
            f"nothing was changed because of conflicts: {'; '.join(plan.conflicts)}",
            "change the file, or delete the entities that conflict with it",
        )
    # One command at a time: a crash leaves some steps undone, and the same file again plans exactly those.
    for step in plan.steps:
        if step.action != SAME:
            command = Declare(step.name, step.kind, step.settings, step.action == UPDATE)
            store.apply([command]).wait()
