"""Servers of boards on the loopback: the app in a thread, or `torch-holdout serve` as a process."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import uvicorn
from torch_holdout.service.server.app import create_app
from torch_holdout.service.server.metrics import Counters

START_SECONDS = 120


@contextlib.contextmanager
def in_thread(board, counters):
    """Serve a board object from a thread of this process; yield its address."""
    app = create_app(board, Counters(counters))
    config = uvicorn.Config(app, log_config=None, access_log=False, server_header=False, ws="none")
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        wait_until(lambda: server.started)
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(30)


def wait_until(condition, seconds=START_SECONDS):
    """Wait for a condition; fail after a while."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


class ServerProcess:
    """`torch-holdout serve` in a process group of its own, so that a kill reaches its workers."""

    def __init__(self, config, log):
        self.log = log
        code = "from torch_holdout.cli import main; main()"
        command = [sys.executable, "-c", code, "serve", str(config)]
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
                start_new_session=True,
            )
        first, second = self.process.stdout.readline(), self.process.stdout.readline()
        assert first.startswith("Serving "), f"{first}{log.read_text()[-2000:]}"
        self.page = first.split()[1]
        self.url = self.page.partition("/boards/")[0]
        self.admin = re.search(r"http://\S+", second)[0]

    def signal(self, number):
        """Send a signal to the parent only."""
        self.process.send_signal(number)

    def wait(self, seconds=60):
        """Wait for the end; return the exit code."""
        return self.process.wait(seconds)

    def kill(self):
        """Kill the parent and every worker, as a power cut would."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()


@contextlib.contextmanager
def serving(config, log):
    """Run a server until the block ends; then nothing of it is left."""
    server = ServerProcess(config, log)
    try:
        yield server
    finally:
        server.kill()
