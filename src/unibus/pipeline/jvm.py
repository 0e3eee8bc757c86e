"""Starts the JVM that Spark runs in, faster than Spark's own script does.

    command line  the script starts a first JVM only to compute the command line: here the result is cached
    classes       an archive of the loaded classes is mapped into memory by the next start (class-data sharing)
    `quick`       only the fast compiler (C1), and a garbage collector without concurrent threads

The cache is in a folder of the user, with names that contain a hash of the versions of Java and Spark. A file that is
missing, old or damaged makes the start slower and has no other effect.

The JVM has a session (setsid) of its own, so that a Ctrl-C for the command does not end it in the middle of a write. It
ends when this process ends, even by a kill: it then reads the end of its standard input. It begins to read only after
it has written the gateway file, so the folder of that file must exist until then: otherwise the JVM fails to write, and
never ends. No pyspark here: it is imported while the JVM starts.
"""

import contextlib
import hashlib
import importlib.util
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from unibus.errors import ExtraMissing, StoreUnavailable
from unibus.extras import install_extra
from unibus.pipeline.java import Java

PATIENCE_S: Final = 120.0
LOOK_AGAIN_S: Final = 0.01
END_S: Final = 2.0
"""How long a JVM may take to delete its temporary files, before it is killed."""

UNUSED_S: Final = 30 * 86_400.0
TRAINER_S: Final = 3_600.0
"""After that time another process may create the archive: the one that began has ended, or runs for days."""

NEEDED_EXTRA: Final = install_extra("pipeline")
_JAR: Final = re.compile(r"spark-launcher_([\d.]+)-(.+)\.jar")
_LEFT_OUT: Final = "--add-modules=jdk.incubator.vector"  # For machine learning; it takes time and prints a warning.
_MAIN: Final = "org.apache.spark.deploy.SparkSubmit"

# The shell starts the JVM in the background, so that this process does not have to wait for its end: writing the
# archive takes a while. The archive gets its name only when it is complete.
_BESIDE: Final = """
exec 3<&0
{
    "$@" <&3 3<&-
    code=$?
    if [ -n "$UNIBUS_PART" ]; then
        if [ $code -eq 0 ]; then mv -f "$UNIBUS_PART" "$UNIBUS_WHOLE"; else rm -f "$UNIBUS_PART"; fi
        rm -f "$UNIBUS_LOCK"
    fi
    rm -rf "$UNIBUS_FOLDER"
} >&2 &
echo $!
"""

_LOGGING: Final = """
rootLogger.level = {level}
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{{yy/MM/dd HH:mm:ss}} %p %c{{1}}: %m%n%ex
"""


@dataclass(frozen=True)
class Spark:
    """The Spark in the pip package."""

    home: Path
    scala: str
    version: str


def find_spark() -> Spark:
    """ExtraMissing if pyspark is not installed. It is not imported."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ExtraMissing("the pipeline needs pyspark, which is not installed", NEEDED_EXTRA)
    home = Path(spec.origin).parent
    for jar in home.glob("jars/spark-launcher_*.jar"):
        if found := _JAR.fullmatch(jar.name):
            return Spark(home, found[1], found[2])
    raise ExtraMissing(f"the pyspark in {home} does not contain Spark", f"pyspark-client is not enough: {NEEDED_EXTRA}")


def can_start_here() -> bool:
    """Not if the user has configured how Spark is started, nor on a system without a POSIX shell."""
    foreign = ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS")
    return os.name == "posix" and not any(os.environ.get(name) for name in foreign)


def cache_folder() -> Path | None:
    """The folder of the archives: UNIBUS_CACHE, else in the user's cache. None if it is not writable."""
    named = os.environ.get("UNIBUS_CACHE")
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / (
        "Library/Caches" if sys.platform == "darwin" else ".cache"
    )
    folder = Path(named) if named else Path(home) / "unibus"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None


class Kept:
    """The cached files for one version of Java and of Spark."""

    def __init__(self, java: Java, spark: Spark, folder: Path) -> None:
        launcher = next(spark.home.glob("jars/spark-launcher_*.jar"))
        facts = (java.version, str(java.path.resolve()), str(spark.home), spark.version, launcher.stat().st_mtime_ns)
        self._stem = f"spark-{hashlib.sha256(repr(facts).encode()).hexdigest()[:16]}"
        self._folder = folder
        self.archive = folder / f"{self._stem}.jsa"
        self.lock = folder / f"{self._stem}.lock"
        self._command = folder / f"{self._stem}.json"

    def command(self) -> list[str] | None:
        try:
            kept = json.loads(self._command.read_text("utf-8"))
        except (OSError, ValueError):
            return None
        return kept if isinstance(kept, list) and all(isinstance(each, str) for each in kept) else None

    def keep_command(self, command: list[str]) -> None:
        part = self._command.with_suffix(f".part{os.getpid()}")
        with contextlib.suppress(OSError):
            part.write_text(json.dumps(command), "utf-8")
            part.replace(self._command)

    def archive_to_use(self) -> Path | None:
        with contextlib.suppress(OSError):
            os.utime(self.archive)  # It is used: `_forget_unused` keeps it.
            return self.archive
        return None

    def may_train(self) -> bool:
        """Whether this start creates the archive. One process at a time; the shell removes the lock file."""
        with contextlib.suppress(OSError):
            if time.time() - self.lock.stat().st_mtime > TRAINER_S:
                self.lock.unlink()
        try:
            os.close(os.open(self.lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except OSError:
            return False
        self._forget_unused()
        return True

    def _forget_unused(self) -> None:
        for each in self._folder.glob("spark-*"):
            with contextlib.suppress(OSError):
                if time.time() - each.stat().st_mtime > UNUSED_S and not each.name.startswith(self._stem):
                    each.unlink()


class Machine:
    """One JVM. `start` returns at once; `wait` returns the port and the secret of its Py4J gateway."""

    def __init__(self, java: Java, spark: Spark, memory: str, quick: bool) -> None:
        self._java = java
        self._spark = spark
        self._options = [f"-Xmx{memory}", "-XX:-UsePerfData", "-Xlog:disable", "-Xlog:all=error:stderr"]
        self._options += ["-XX:TieredStopAtLevel=1", "-XX:+UseParallelGC"] if quick else []
        folder = cache_folder()
        self._kept = None if folder is None else Kept(java, spark, folder)
        self._train = quick
        self._archive: Path | None = None
        self._folder = ""
        self._trained: tuple[Path, ...] = ()
        self._process: Process | None = None
        self._up = False
        self._log: IO[bytes] | None = None

    def start(self) -> None:
        self._archive = self._kept.archive_to_use() if self._kept else None
        command = self._command()
        sharing, environment = self._sharing()
        self._folder = tempfile.mkdtemp(prefix="unibus-spark-")
        logging = Path(self._folder, "log4j2.properties")
        log_file = os.environ.get("UNIBUS_SPARK_LOG")
        logging.write_text(_LOGGING.format(level="warn" if log_file else "off"))
        command[1:1] = [*self._options, *sharing, f"-Dlog4j2.configurationFile={logging.as_uri()}"]
        self._log = open(log_file, "ab") if log_file else tempfile.TemporaryFile()  # noqa: SIM115
        self._process = _beside(command, {**self._environment(), **environment}, self._log)

    def _sharing(self) -> tuple[list[str], dict[str, str]]:
        """Options that use the archive, or create it."""
        if self._archive is not None:
            return [f"-XX:SharedArchiveFile={self._archive}"], {}
        if self._kept is None or not self._train or not self._kept.may_train():
            return [], {}
        whole = self._kept.archive
        part = whole.with_suffix(f".part{os.getpid()}")
        self._trained = (part, self._kept.lock)
        names = {"UNIBUS_PART": str(part), "UNIBUS_WHOLE": str(whole), "UNIBUS_LOCK": str(self._kept.lock)}
        return [f"-XX:ArchiveClassesAtExit={part}"], names

    def _command(self) -> list[str]:
        kept = self._kept.command() if self._kept else None
        if kept is None:
            kept = _launcher_command(self._java, self._spark)
            if self._kept:
                self._kept.keep_command(kept)
        return list(kept)

    def _environment(self) -> dict[str, str]:
        return {
            "SPARK_HOME": str(self._spark.home),
            "SPARK_SCALA_VERSION": self._spark.scala,
            "SPARK_ENV_LOADED": "1",
            "SPARK_CONNECT_MODE": "0",
            "UNIBUS_FOLDER": self._folder,
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(Path(self._folder, "gateway")),
        }

    def wait(self) -> tuple[int, str]:
        """StoreUnavailable, with the first line of its output, if it does not start."""
        if self._has_started():
            found = _gateway(Path(self._folder, "gateway"))
            self._tidy()
            return found
        said = self._said()
        self.end()
        if self._archive is not None:  # It may be damaged: try once more without it.
            self._archive.unlink(missing_ok=True)
            self._train = False
            self.start()
            return self.wait()
        raise StoreUnavailable(f"Java did not start: {said}", f"`{self._java.path} -version` has to work")

    def end(self) -> None:
        """End the JVM, in any state. It cannot be used any more."""
        process, self._process = self._process, None
        if process is not None:
            process.end(END_S if self._up else 0.0)
            self._tidy()
        for each in self._trained:  # The shell would have removed them.
            each.unlink(missing_ok=True)
        self._trained, self._up = (), False

    def _tidy(self) -> None:
        """Only when the JVM does not write there any more."""
        if self._log is not None:
            self._log.close()  # The JVM has a handle of its own.
        shutil.rmtree(self._folder, ignore_errors=True)

    def _has_started(self) -> bool:
        ends_s = time.monotonic() + PATIENCE_S
        path = Path(self._folder, "gateway")
        while not path.exists():
            if self._process is None or not self._process.is_alive() or time.monotonic() > ends_s:
                return path.exists()
            time.sleep(LOOK_AGAIN_S)
        self._up = True
        return True

    def _said(self) -> str:
        if self._log is None or not self._log.readable():
            return "see its log"
        self._log.seek(0)
        lines = self._log.read().decode("utf-8", "replace").strip().splitlines()
        return lines[0] if lines else "it printed nothing"


@dataclass(frozen=True)
class Process:
    """The JVM and its shell, in a process group of their own. `stdin` is our end of the pipe that the JVM reads: it
    ends when the pipe is closed, at the latest when this process ends."""

    group: int
    pid: int
    stdin: int

    def is_alive(self) -> bool:
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def end(self, grace_s: float) -> None:
        """Close its input, and kill it if it has not ended after `grace_s`."""
        os.close(self.stdin)
        try:
            self._wait(grace_s)
        finally:
            _kill(self.group)
        self._wait(END_S)

    def _wait(self, patience_s: float) -> None:
        ends_s = time.monotonic() + patience_s
        while self.is_alive() and time.monotonic() < ends_s:
            time.sleep(LOOK_AGAIN_S)


def _beside(command: list[str], environment: dict[str, str], log: IO[bytes]) -> Process:
    theirs, ours = os.pipe()
    shell: subprocess.Popen[bytes] | None = None
    try:
        shell = subprocess.Popen(
            ["/bin/sh", "-c", _BESIDE, "sh", *command],
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=log,
            env={**os.environ, **environment},
            start_new_session=True,
        )
        with shell:
            return Process(shell.pid, int(shell.communicate()[0]), ours)
    except BaseException:
        os.close(ours)
        if shell is not None:
            _kill(shell.pid)
        raise
    finally:
        os.close(theirs)


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # PermissionError: only a zombie is left.
        os.killpg(group, signal.SIGKILL)


def _launcher_command(java: Java, spark: Spark) -> list[str]:
    """The command line that Spark's own launcher computes: the options that Java needs differ between versions."""
    launcher = [str(java.path), "-XX:TieredStopAtLevel=1", "-Xmx128m", "-cp", f"{spark.home}/jars/*"]
    facts = {"SPARK_HOME": str(spark.home), "SPARK_SCALA_VERSION": spark.scala, "JAVA_HOME": _home(java)}
    done = subprocess.run(
        [*launcher, "org.apache.spark.launcher.Main", _MAIN, "pyspark-shell"],
        capture_output=True,
        env={**os.environ, **facts},
    )
    words = [each.decode() for each in done.stdout.partition(b"\0\n")[2].split(b"\0") if each]
    if done.returncode or _MAIN not in words:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["it printed nothing"]
        raise StoreUnavailable(f"Spark could not be started: {said[0]}", f"is pyspark complete? {NEEDED_EXTRA}")
    words[0] = str(java.path)
    return [each for each in words if each != _LEFT_OUT and not each.startswith("-Xmx")]


def _home(java: Java) -> str:
    return str(java.path.resolve().parent.parent)


def _gateway(path: Path) -> tuple[int, str]:
    """The file that Spark writes: the port, then the length of the secret and the secret."""
    data = path.read_bytes()
    port, length = struct.unpack(">ii", data[:8])
    return port, data[8 : 8 + length].decode()
