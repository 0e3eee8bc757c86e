"""Reports whether the running package is compiled: for `unibus --version`, demo, benchmarks, health and the log.

A build that cannot compile installs the same package as plain Python, and pip shows the warning only with -v. So the
package reports it at run time. A checkout (an editable install) is plain on purpose, and that is no problem.
"""

from pathlib import Path
from typing import Final

from unibus.core.atomic import COMPILED
from unibus.safe_log import SafeLogger

log = SafeLogger("unibus")

BUILD: Final = "compiled" if COMPILED else "plain"
_HINT: Final = "install it again with `pip install -v`, which shows why it was not compiled"

_is_logged = False


def is_checkout(package: Path = Path(__file__).parent.parent) -> bool:
    """Whether the package is imported from a source checkout, which is never compiled in place."""
    # By the layout of the sources: an installed package is in site-packages, without a setup.py beside it.
    return package.parent.name == "src" and (package.parent.parent / "setup.py").is_file()


def describe_build() -> str:
    """A text for humans that continues the sentence "unibus is …"."""
    if COMPILED:
        return "compiled"
    return "plain Python, from a checkout" if is_checkout() else "plain Python, about ten times slower than compiled"


def describe_version() -> str:
    """The version, the kind of build and the Python, in one line."""
    # Imported here: a program that imports the package does not need them.
    import importlib.metadata
    import platform

    try:
        number = importlib.metadata.version("unibus")
    except importlib.metadata.PackageNotFoundError:
        number = "(not installed)"
    return f"unibus {number} ({describe_build()}), Python {platform.python_version()}"


def build_hint() -> str:
    """What to do about a plain build; empty when no action is needed."""
    return "" if COMPILED or is_checkout() else _HINT


def log_plain_build() -> None:
    """Log once per process, with its first bus, that the build is plain: it explains a program that is slow."""
    global _is_logged
    if COMPILED or _is_logged:
        return
    # Without a lock: two threads that open the first buses at once may log the line twice.
    _is_logged = True
    hint = build_hint()
    log.info("unibus is %s%s", describe_build(), f"; {hint}" if hint else "")
