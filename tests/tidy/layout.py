"""The layout rules as data. Changing a line here changes the architecture: do it on purpose, with a decision.

The drawing for readers is ARCHITECTURE.md; where the two differ, this table is what holds.
"""

from typing import Final

PACKAGE: Final = "unibus"
SOURCE: Final = f"src/{PACKAGE}"

BASE: Final = frozenset(
    {"errors", "limits", "clock", "counting", "display", "extras", "near_names", "other_words", "safe_log", "threads"}
)
"""Base modules: standard library only, and nothing of ours. Every package may import them."""

_BELOW_ENDPOINTS = frozenset({"core", "stores", "bus", "sync", "codecs"})
_ENDPOINTS = frozenset({"endpoints", "client", "federation", "capture", "pipeline", "testing"})

PACKAGES: Final[dict[str, frozenset[str]]] = {
    "core": frozenset(),
    "codecs": frozenset(),  # Not even core: a foreign wire format must not know our rules.
    "stores": frozenset({"core"}),
    "bus": frozenset({"core", "stores"}),
    "sync": frozenset({"core", "stores", "bus"}),  # The bus for programs without a loop.
    "config": frozenset({"core"}),  # Describes and reads settings; what is configured takes them as an argument.
    # Network only: what it needs of a store it asks the bus for.
    "endpoints": frozenset({"core", "bus", "codecs", "config"}),
    # Connects a bus and the HTTP endpoint to a framework of the user; holds no rule of its own.
    "integrations": frozenset({"core", "bus", "endpoints"}),
    # The other side of the network: what an operation answers is a record of bus/management.
    "client": frozenset({"core", "bus", "config"}),
    "federation": frozenset({"core", "bus"}),
    "capture": frozenset({"core", "stores"}),  # Reads history as a reader does, beside the bus.
    "pipeline": frozenset({"core", "stores", "bus", "sync", "capture"}),
    "../pyspark_unibus": frozenset({"pipeline"}),  # Beside the package: Spark finds a source by such a name only.
    "console": frozenset(),  # Static files that speak the HTTP interface.
    "testing": frozenset({"core", "stores", "bus", "sync"}),
    "cli": _BELOW_ENDPOINTS | _ENDPOINTS | {"config"},
    "__main__": frozenset({"cli"}),
    "public": frozenset({"core", "stores", "bus", "sync", "federation"}),  # Public names only.
    "__init__": frozenset({"public"}),
}
"""Which packages a package may import, besides itself and the base modules. One that is not listed may not exist."""

_FOLDERS: Final = {
    "bus": {
        ".": "",
        "bodies": "",
        "cloudevents": "",
        "history": ".",
        "pubsub": ".",
        "execution": ". bodies pubsub",
        "management": "pubsub",
        "queues": ". bodies pubsub",
        "dead_letters": ". queues",
        "entities": ". queues",
        "outbox": "pubsub queues",
        "subscriptions": ". execution pubsub",
        "compat": ". execution history pubsub subscriptions",
        "persistent": ". execution history pubsub queues subscriptions",
        "shutdown": ". execution outbox persistent pubsub subscriptions",
        "api": ". compat dead_letters entities execution history outbox persistent "
        "pubsub queues shutdown subscriptions",
        "management.history": "api history management",
        "management.jobs": "api dead_letters pubsub queues",
        "management.messages": ". api dead_letters history management outbox queues",
        "management.settings": ". api entities management management.messages",
        "otel": ". api execution persistent pubsub queues subscriptions",
    },
    "core": {
        ".": "",
        "access": "",
        "envelope": ".",
        "codec": "envelope",
        "filters": "envelope",
        "flow": ". envelope",
        "lifecycle.state": "access codec envelope filters",
        "lifecycle": "codec envelope flow lifecycle.state",
        "topics": ".",
    },
    "stores": {
        "files": "",
        "seam": "files",
        "engine": "files seam",
        "jsonfile": "files seam",
        "query": "seam",
        "sql": "seam",
        "sqlite": "files seam sql",
        ".": "engine files jsonfile seam sqlite",
        "inspection": ". engine files seam",
    },
    "cli": {
        "terminal": "",
        "connection": "terminal",
        "filter": "terminal",
        "local": "connection terminal",
        "remote": "connection terminal",
        ".": "connection local remote terminal",
        "entities": ". connection terminal",
        "capture": "connection entities terminal",
        "files": ". connection terminal",
        "messages": ". connection terminal",
        "demo": "messages terminal",
        "pipeline": "messages terminal",
        "server": "connection entities terminal",
        "dlq": ". connection entities server terminal",
    },
    "endpoints": {
        ".": "",
        "http": ".",
        "http.administration": ". http",
        "http.messages": ". http",
        "http.management": ". http http.messages",
        "http.management.history": "http http.management",
        "http.management.messages": "http http.management",
        "http.management.settings": "http http.administration http.management",
        "http.management.tables": ". http http.management http.management.history "
        "http.management.messages http.management.settings",
        "http.monitoring": ". http",
        "http.application": "http http.administration http.management.tables http.messages http.monitoring",
        "transport": ". http",
        "server": ". transport",
    },
    "pipeline": {
        "connector": "",
        "generator": "",
        "storage": "",
        "jobs": "storage",
        ".": "connector jobs storage",
        "reports": ". storage",
        "serving": ". reports",
    },
    "testing": {
        "clock": "",
        "contracts": "clock",
        "model": "",
        ".": "clock contracts model",
    },
}
"""The folders of each package that has some, and which others of the same package each may import; "." are the modules
of the package itself. A folder only names folders that are listed before it, so no two import each other."""


def _full_name(package: str, folder: str) -> str:
    return package if folder == "." else f"{package}.{folder}"


SUBPACKAGES: Final[dict[str, frozenset[str]]] = {
    _full_name(package, folder): frozenset(_full_name(package, other) for other in others.split())
    for package, folders in _FOLDERS.items()
    for folder, others in folders.items()
}
"""The same with full names."""

EDGES: Final[dict[str, frozenset[str]]] = {
    "bus.api": frozenset({"capture.child"}),  # `?capture=DIR` starts a capture beside the bus.
    "bus.shutdown": frozenset({"capture.child"}),  # And closing the bus ends it.
}
"""Single modules of another package that a folder may import, where the table of packages says no."""

FILES_MAX: Final = 20
"""Python files in one folder: what one look takes in."""

THIRD_PARTY: Final[dict[str, frozenset[str]]] = {
    "core": frozenset({"msgspec", "mypy_extensions"}),
    "codecs": frozenset({"mypy_extensions"}),
    "stores": frozenset({"msgspec", "mypy_extensions", "apsw", "redis", "asyncpg", "asyncmy"}),
    "bus": frozenset({"msgspec", "mypy_extensions", "opentelemetry"}),  # The last one only when a bus is traced.
    "sync": frozenset({"msgspec", "mypy_extensions"}),
    "endpoints": frozenset({"msgspec", "fastapi", "starlette", "uvicorn", "httptools", "uvloop", "cryptography"}),
    "integrations": frozenset({"fastapi", "starlette"}),
    "client": frozenset({"msgspec"}),
    "federation": frozenset({"msgspec", "httpx2"}),
    "capture": frozenset({"msgspec", "pyarrow"}),
    "pipeline": frozenset({"msgspec", "numpy", "pyspark", "pyarrow", "deltalake"}),  # Only here is Spark known.
    "testing": frozenset({"pytest", "pytest_asyncio", "apsw"}),
    "config": frozenset({"yaml"}),
    "cli": frozenset({"typer", "rich", "msgspec"}),
}
"""Which packages of other people one of ours may import. Few, and each in one place, so that it can be replaced."""

# Sizes in code lines: comments and docstrings are free, because a reason must never cost anything.
FUNCTION_LINES_MAX: Final = 50  # One screen.
MODULE_LINES_MAX: Final = 400
PARAMETERS_MAX: Final = 8  # More than that is a type that wants a name.
METHODS_MAX: Final = 24
BASES_MAX: Final = 2  # Classes of ours above a class.

MODULE_NAMES_BANNED: Final = frozenset({"util", "utils", "helper", "helpers", "common", "misc", "manager", "managers"})
CLASS_SUFFIXES_BANNED: Final = ("Manager", "Helper", "Helpers", "Util", "Utils", "Mixin", "Impl", "Base")

WORDS_BANNED: Final = (
    *("nobody", "somebody", "whoever", "anew", "mends?", "mended", "told", "stands?", "stood"),
    *(r"lets? go", r"gives? way", r"gave way", r"comes? back", r"came back", r"in hand", r"goes on living"),
    *("houses?", "rooms?", "ground", "doors?", "faces?", "desks?", "seats?", "keepers?"),
    r"(?<!dead-)letters?(?!,? (?:and|or|digits))",
)
"""Not in an error, a log line or a help text: docs/glossary.md has the word to use for each."""

PROMISED_NAMES: Final[dict[str, str]] = {
    "DeadLetterManager": "a public name that the first users of this interface were promised",
    "SyncDeadLetterManager": "the same on the sync API",
}
"""Classes whose name is fixed from outside, with the reason."""

# What core and codecs may not touch: a run must follow from its arguments, so that it can be replayed from a seed.
WORLD_MODULES: Final[dict[str, str]] = {
    **dict.fromkeys(("time", "sched", "calendar"), "reads a clock"),
    **dict.fromkeys(("random", "secrets", "uuid"), "is chance"),
    **dict.fromkeys(("os", "io", "pathlib", "shutil", "tempfile", "glob", "fileinput", "mmap"), "touches files"),
    **dict.fromkeys(("socket", "ssl", "select", "selectors", "http", "urllib", "socketserver"), "touches the network"),
    **dict.fromkeys(("sqlite3", "dbm", "shelve"), "touches a database"),
    **dict.fromkeys(("subprocess", "multiprocessing", "signal"), "touches processes"),
    **dict.fromkeys(("threading", "_thread", "concurrent", "asyncio", "queue"), "knows threads or loops"),
    **dict.fromkeys(("logging", "warnings"), "writes output that the caller did not ask for"),
    **dict.fromkeys(("pickle", "marshal", "importlib", "ctypes"), "runs what it is given"),
}
WORLD_NAMES_ALLOWED: Final[dict[str, frozenset[str]]] = {
    "uuid": frozenset({"UUID"}),  # The type of a header's value. Drawing one is chance; holding one is not.
}
WORLD_MODULES_ALLOWED: Final[dict[tuple[str, str], str]] = {
    ("unibus.core.atomic", "_thread"): "the one lock that replaces the interpreter's when core runs plain",
}
WORLD_CALLS: Final = frozenset({"open", "print", "input", "eval", "exec", "compile", "breakpoint", "__import__"})
WORLD_METHODS: Final = frozenset({"now", "utcnow", "today"})

# Never, in any package: data from outside must not become code.
CODE_MODULES: Final = frozenset({"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "marshal", "shelve"})
CODE_CALLS: Final = frozenset({"eval", "exec"})
YAML_CALLS: Final = frozenset({"load", "load_all", "full_load", "full_load_all", "unsafe_load", "unsafe_load_all"})

REPORTING_CALLS: Final = frozenset({"exception", "error", "warning", "critical", "print_exc", "print_exception"})
"""Method names that count as reporting an error."""

MAKE_TARGETS: Final = (
    "serve",
    "demo",
    "quick",
    "test",
    "check",
    "bench",
    "soak",
    "pythons",
    "docs",
    "pictures",
    "fmt",
    "clean",
)

MACHINE_FOLDERS: Final = ("root", "work", "home")
REGISTRY_HOSTS: Final = (("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org"), ("npmjs", "com"))
"""Apart, so that this file does not name what it forbids."""

_PUBLISH = "the names are promised, and collecting **fields would cost a compiled publish a quarter of its time"
_PUBLISHES = (
    "unibus.bus.api.message_bus.MessageBus.publish",
    "unibus.bus.api.message_bus.MessageBus.publish_from_sync",
    "unibus.bus.api.sync_bus.SyncMessageBus.publish",
    "unibus.bus.api.sync_bus.SyncMessageBus.publish_from_sync",
    "unibus.testing.recording.RecordingBus.publish",
    "unibus.testing.recording.RecordingSyncBus.publish",
)
_FACADE = "the facade: the requirements fix its names, and each method calls a part in a line or two"
_OPTIONS = "options of a command: each class adds the options that some commands share"
_FACADES = (
    "unibus.bus.api.message_bus.MessageBus",
    "unibus.bus.api.sync_bus.SyncMessageBus",
    "unibus.testing.recording.RecordingBus",
    "unibus.testing.recording.RecordingSyncBus",
)
EXCEPTIONS: Final[dict[tuple[str, str], str]] = {
    ("classes_are_small", "unibus.bus.api.bus_operations.BusOperations"): _FACADE,
    ("classes_are_small", "unibus.bus.api.message_bus.MessageBus"): _FACADE,
    ("classes_are_small", "unibus.bus.api.sync_bus.SyncMessageBus"): _FACADE,
    ("classes_are_small", "unibus.core.envelope.message.Message"): "most are properties: one per field of the envelope",
    ("classes_are_shallow", "unibus.cli.dlq.dlq.RetryOptions"): _OPTIONS,
    ("classes_are_shallow", "unibus.cli.dlq.dlq.RedirectOptions"): _OPTIONS,
    ("classes_are_shallow", "unibus.testing.model.store.ModelStore"): "a rule of the model per layer, readable alone",
    ("calls_name_their_arguments", "unibus.pipeline.storage.tables: _columns"): "a list of columns, one argument each",
    **{("interfaces_are_small", subject): _FACADE for subject in _FACADES},
    (
        "interfaces_are_small",
        "unibus.core.envelope.message.Message",
    ): "most are properties: one per field of the envelope",
    ("interfaces_are_small", "unibus.bus.api.broker.Broker"): "one method per operation of a protocol server",
    ("interfaces_are_small", "unibus.testing.contracts.rig.Rig"): "one short call per operation that the suite uses",
    ("interfaces_are_small", "unibus.testing.model.store.ModelStore"): "one method per operation of a store",
    ("interfaces_are_small", "unibus.testing.power.SimulatedDisk"): "one method per call of the file system",
    ("interfaces_are_small", "unibus.testing.store_contract.StoreContract"): "its methods are tests",
    **{("signatures_are_narrow", subject): _PUBLISH for subject in _PUBLISHES},
}
"""(rule, subject as printed in brackets) -> why this one may break it. One that is no longer needed is a breach."""
