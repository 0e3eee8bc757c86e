"""The result of a check: everything that is wrong, what it means for messages, and how much the store has."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong. `effect` is what a repair does about it."""

    what: str
    effect: str


@dataclass
class Inspection:
    """The result of a check. Without findings the store is intact."""

    url: str
    changes: int = 0
    groups: int = 0
    entities: int = 0
    messages: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.findings
