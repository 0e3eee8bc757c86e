"""What a check found: each thing that is wrong, what it means for messages, and what the store holds."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Finding:
    """`effect` says what a repair does about it."""

    what: str
    effect: str


@dataclass
class Inspection:
    """The outcome of a check. No findings: the store is whole."""

    url: str
    changes: int = 0
    groups: int = 0
    entities: int = 0
    messages: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.findings
