"""A Spark cluster on this machine, from what the pip package holds: a Master, two Workers and a Connect server.

`running(folder)` gives it to tests. It runs below a keeper, this very file as a program in a session of its own. The
keeper ends everything when its standard input is closed, and that happens however the tests end: by themselves, by a
failure, by Ctrl-C, by kill -9. Ports are free ones of 127.0.0.1, chosen by Spark itself; logs and work are in `folder`.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Final, NoReturn, Self

from unibus.pipeline.java import find_java
from unibus.pipeline.jvm import Kept as KeptClasses
from unibus.pipeline.jvm import Spark, cache_folder, find_spark

ROOT: Final = Path(__file__).parents[2]
HOST: Final = "127.0.0.1"
WORKERS: Final = 2
START_S_MAX: Final = 180.0
END_S_MAX: Final = 20.0
LOOK_AGAIN_S: Final = 0.05
JOB_S_MAX: Final = 240.0

SMALL_JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
"""What starts soon and takes little: nothing here runs for long enough to be worth compiling well."""


def small_java() -> str:
    """With the classes that `unibus` keeps for its own sessions, if it has: that saves a third of the start."""
    folder = cache_folder()
    classes = KeptClasses(find_java(), find_spark(), folder).archive_to_use() if folder else None
    return f"{SMALL_JAVA} -XX:SharedArchiveFile={classes}" if classes else SMALL_JAVA


def executors() -> dict[str, str]:
    """What a session asks the cluster for."""
    return {
        "spark.executor.memory": "512m",  # Spark refuses less than 450 MiB.
        "spark.executor.cores": "1",
        "spark.cores.max": str(WORKERS),  # One executor on each Worker: both have to work.
        "spark.executor.extraJavaOptions": small_java(),
        # Else the first tasks may all find only one of them.
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{START_S_MAX:.0f}s",
        "spark.driver.host": HOST,
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.codegen.wholeStage": "false",  # Compiling a query takes longer than so few rows.
    }


@dataclass(frozen=True)
class Cluster:
    master: str
    connect: str
    folder: str

    def logs(self) -> str:
        """The last lines of every log, to see why a test failed."""
        tails = []
        for log in sorted(Path(self.folder).glob("*.log")):
            tails += [f"--- {log.name}", *log.read_text("utf-8", "replace").splitlines()[-15:]]
        return "\n".join(tails)


@contextmanager
def running(folder: Path) -> Iterator[Cluster]:
    """A cluster that answers. When this is left, none of its processes is."""
    keeper = subprocess.Popen(
        [sys.executable, "-m", "tests.pipeline.cluster", str(folder)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # A Ctrl-C is for the tests, which stop the cluster.
    )
    with keeper:
        assert keeper.stdin is not None
        assert keeper.stdout is not None
        try:
            told = keeper.stdout.readline()
            if not told:
                raise RuntimeError(f"the cluster did not start\n{Cluster('', '', str(folder)).logs()}")
            yield Cluster(**json.loads(told))
        finally:
            keeper.stdin.close()
            keeper.wait()


def run(name: str, folder: Path, command: list[str], **environment: str) -> None:
    """A program that drives a job, below a keeper of its own. RuntimeError, with what it said, if it fails."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.pipeline.cluster", str(folder), name, *command],
        cwd=ROOT,
        env={**os.environ, "SPARK_LOCAL_IP": HOST, **environment},
        stdin=subprocess.PIPE,
        start_new_session=True,
    ) as keeper:
        assert keeper.stdin is not None
        try:
            keeper.wait(JOB_S_MAX)
        finally:
            keeper.stdin.close()
            keeper.wait()
    if keeper.returncode:
        said = (folder / f"{name}.log").read_text("utf-8", "replace")
        raise RuntimeError(f"{name} ended with {keeper.returncode}: {said[-8000:]}")


class Children:
    """Processes that end with this block, and with them whatever they have started in their group."""

    def __init__(self, folder: Path, at: Path | None = None) -> None:
        """Logs go to `folder`, and what is started there runs there, if not `at` another place."""
        self._folder = folder
        self._at = at or folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._logs: list[IO[bytes]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        # The last first: a Worker that loses its Master, or a server its Workers, would only wonder why.
        for process in reversed(self._processes.values()):
            _signal(process, signal.SIGTERM)
        ends_s = time.monotonic() + END_S_MAX
        for process in self._processes.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, ends_s - time.monotonic()))
            _signal(process, signal.SIGKILL)  # Also when it has ended: executors are of its group.
            process.wait()
        for log in self._logs:
            log.close()

    def start(self, name: str, command: list[str], **environment: str) -> int:
        log = (self._folder / f"{name}.log").open("wb")
        self._logs.append(log)
        self._processes[name] = subprocess.Popen(
            command,
            cwd=self._at,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        return self._processes[name].pid

    def wait(self, name: str) -> int:
        return self._processes[name].wait()

    def wait_for(self, name: str, pattern: str, times: int = 1) -> list[str]:
        """What the log of `name` says, as often as it has to. RuntimeError where it has ended, or takes too long."""
        ends_s = time.monotonic() + START_S_MAX
        log = self._folder / f"{name}.log"
        while True:
            found = re.findall(pattern, log.read_text("utf-8", "replace"))
            if len(found) >= times:
                return found
            if self._processes[name].poll() is not None or time.monotonic() > ends_s:
                raise RuntimeError(f"{name} said {len(found)} of {times} times {pattern!r}")
            time.sleep(LOOK_AGAIN_S)


def _signal(process: "subprocess.Popen[bytes]", number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def start(children: Children, folder: Path) -> Cluster:
    """In turn: an address for the Workers, then Workers for the server, so that each gets one of its executors."""
    spark = find_spark()
    java = find_java().path.resolve().parent.parent
    everybody = {"SPARK_HOME": str(spark.home), "SPARK_LOCAL_IP": HOST, "JAVA_HOME": str(java)}
    everybody["PYSPARK_PYTHON"] = sys.executable
    # Without the HTTP endpoint for jobs, which would listen on a fixed port.
    options = f"{small_java()} -Dspark.master.rest.enabled=false"
    daemons = {**everybody, "SPARK_DAEMON_MEMORY": "192m", "SPARK_DAEMON_JAVA_OPTS": options}
    children.start("master", _daemon(spark, "master.Master"), **daemons)
    master = children.wait_for("master", r"Starting Spark master at (spark://\S+)")[0]
    for number in range(1, WORKERS + 1):
        # Enough for one executor of the Connect server and one of another job.
        size = ["--cores", "2", "--memory", "1100m", "--work-dir", str(folder / f"worker{number}")]
        children.start(f"worker{number}", [*_daemon(spark, "worker.Worker"), *size, master], **daemons)
    children.wait_for("master", "Registering worker", WORKERS)
    children.start("connect", _connect_server(spark, master), **everybody, SPARK_DAEMON_MEMORY="640m")
    port = children.wait_for("connect", r"Spark Connect server started at: \S*:(\d+)")[0]
    return Cluster(master, f"sc://{HOST}:{port}", str(folder))


def _daemon(spark: Spark, name: str) -> list[str]:
    command = [str(spark.home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}"]
    return [*command, "--host", HOST, "--port", "0", "--webui-port", "0"]


def _connect_server(spark: Spark, master: str) -> list[str]:
    settings = {
        **executors(),
        "spark.connect.grpc.binding.port": "0",
        "spark.connect.grpc.binding.address": HOST,
        "spark.ui.enabled": "false",
    }
    command = [str(spark.home / "bin" / "spark-submit"), "--master", master, "--driver-java-options", small_java()]
    command += [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    return [*command, "--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]


def _ended(number: int, frame: object) -> NoReturn:
    sys.exit(128 + number)


def _end_with_input() -> None:
    """Not by `sys.stdin`: its lock would be held by this thread when the process ends."""
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGTERM)


def main(folder: Path, name: str = "", *command: str) -> None:
    """The supervisor of a cluster: prints its address, then waits until no test needs it. Or that of one program."""
    signal.signal(signal.SIGTERM, _ended)
    signal.signal(signal.SIGHUP, _ended)
    threading.Thread(target=_end_with_input, daemon=True).start()
    with Children(folder, ROOT if command else folder) as children:
        if command:
            children.start(name, list(command))
            sys.exit(children.wait(name))
        sys.stdout.write(f"{json.dumps(asdict(start(children, folder)))}\n")
        sys.stdout.flush()
        signal.pause()


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), *sys.argv[2:])
