"""Reads a Dockerfile into stages of instructions, and a .dockerignore into what it leaves in the build."""

import json
import shlex
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import PurePosixPath


@dataclass(frozen=True)
class Instruction:
    name: str
    rest: str

    def words(self) -> list[str]:
        """Without options such as --from=…"""
        return [word for word in shlex.split(self.rest) if not word.startswith("--")]

    def command(self) -> list[str]:
        """The exec form. A shell form would be a shell that gets the signals in place of the program."""
        found = json.loads(self.rest[self.rest.index("[") :])
        assert all(isinstance(word, str) for word in found)
        return list(found)


@dataclass
class Stage:
    base: str
    name: str
    instructions: list[Instruction] = field(default_factory=list)

    def all(self, name: str) -> list[Instruction]:
        return [each for each in self.instructions if each.name == name]

    def only(self, name: str) -> Instruction:
        (found,) = self.all(name)
        return found

    def environment(self) -> dict[str, str]:
        return dict(word.split("=", 1) for each in self.all("ENV") for word in each.words())

    def order(self) -> list[str]:
        return [each.name for each in self.instructions]


def read_stages(text: str) -> list[Stage]:
    stages: list[Stage] = []
    arguments: dict[str, str] = {}
    for instruction in _instructions(text):
        if instruction.name == "ARG" and not stages:
            name, _, value = instruction.rest.partition("=")
            arguments[name] = value
        elif instruction.name == "FROM":
            words = instruction.rest.split()
            base = words[0]
            for name, value in arguments.items():
                base = base.replace(f"${{{name}}}", value)
            stages.append(Stage(base, words[2] if len(words) > 2 else ""))
        else:
            stages[-1].instructions.append(instruction)
    return stages


def _instructions(text: str) -> list[Instruction]:
    found: list[Instruction] = []
    joined = ""
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        joined += line.strip()
        if joined.endswith("\\"):
            joined = joined[:-1]
            continue
        name, _, rest = joined.partition(" ")
        found.append(Instruction(name, rest.strip()))
        joined = ""
    assert not joined, "a line that goes on after the end"
    return found


def is_ignored(path: str, patterns: str) -> bool:
    """The last pattern that matches the path, or a folder of it, decides; `!` is an exception."""
    ignored = False
    parts = PurePosixPath(path).parts
    prefixes = ["/".join(parts[: count + 1]) for count in range(len(parts))]
    for pattern in patterns.splitlines():
        if not pattern.strip() or pattern.startswith("#"):
            continue
        negated, wanted = pattern.startswith("!"), pattern.lstrip("!").rstrip("/")
        names = [PurePosixPath(each).name for each in prefixes] if wanted.startswith("**/") else prefixes
        if any(fnmatch(each, wanted.removeprefix("**/")) for each in names):
            ignored = not negated
    return ignored
