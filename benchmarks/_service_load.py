"""Clients of a board in a process of their own: each keeps a connection and sends files."""

import hashlib
import http.client
import io
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np


def bodies(folder: Path, client: int, number: int) -> list[bytes]:
    """Return different files for a client, near the board's labels."""
    target = np.load(folder / "labels.npy")
    rows = len(target)
    generator = np.random.default_rng(client)
    made = []
    for _ in range(number):
        wrong = generator.random(rows) < 0.3
        predictions = np.where(wrong, (target + 1) % 10, target).astype(np.uint8)
        stream = io.BytesIO()
        np.save(stream, predictions)
        made.append(stream.getvalue())
    return made


def send(url: str, token: str, files: list[bytes], waits: list[float], start: Any) -> None:
    """Send files one after the other; keep how long each answer took."""
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=60)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/x-npy"}
    addresses = [f"/v1/boards/digits/submissions/{hashlib.sha256(b).hexdigest()}" for b in files]
    connection.connect()
    start.wait()
    for address, body in zip(addresses, files, strict=True):
        began = time.perf_counter()
        connection.request("PUT", address, body, headers)
        answer = connection.getresponse()
        content = answer.read()
        if answer.status != 201:
            raise SystemExit(f"{answer.status}: {content.decode()[:300]}")
        waits.append(time.perf_counter() - began)


def main() -> None:
    """Run the clients that standard input describes; print seconds and waits as JSON."""
    asked = json.load(sys.stdin)
    folder, tokens = Path(asked["folder"]), asked["tokens"]
    files = [bodies(folder, 100 * asked["seed"] + i, asked["each"]) for i in range(len(tokens))]
    waits: list[float] = []
    start = threading.Barrier(len(tokens) + 1)
    clients = [
        threading.Thread(target=send, args=(asked["url"], token, own, waits, start))
        for token, own in zip(tokens, files, strict=True)
    ]
    for client in clients:
        client.start()
    start.wait()
    began = time.perf_counter()
    for client in clients:
        client.join()
    seconds = time.perf_counter() - began
    print(json.dumps({"seconds": seconds, "waits": waits}))


if __name__ == "__main__":
    main()
