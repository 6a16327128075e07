"""Limits that guard the machine: bodies and their deadlines, requests a minute, bytes at once."""

import asyncio
import socket

import anyio
import pytest
from starlette.requests import Request
from torch_holdout.service.server import run
from torch_holdout.service.server.bodies import announced_length, read_body
from torch_holdout.service.server.limits import RateWindow, ReadingRoom
from torch_holdout.service.server.metrics import Counters, exposition, ready
from torch_holdout.service.server.problems import Problem, RefusedError


def request_with(headers, *chunks, wait=0.0):
    """Return a request whose body comes in chunks; None stands for a broken connection."""
    left = list(chunks)

    async def receive():
        await anyio.sleep(wait)
        chunk = left.pop(0)
        if chunk is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": chunk, "more_body": bool(left)}

    raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]
    return Request({"type": "http", "method": "PUT", "path": "/", "headers": raw}, receive)


def refusal(function, *given, **named):
    with pytest.raises(RefusedError) as caught:
        function(*given, **named)
    return caught.value


def read(request, length, seconds=60.0):
    async def run():
        return await read_body(request, length, seconds=seconds)

    return anyio.run(run)


@pytest.mark.parametrize(
    ("headers", "problem"),
    [
        ({}, Problem.LENGTH),
        ({"Content-Length": ""}, Problem.LENGTH),
        ({"Content-Length": "-1"}, Problem.LENGTH),
        ({"Content-Length": "+5"}, Problem.LENGTH),
        ({"Content-Length": "5.0"}, Problem.LENGTH),
        ({"Content-Length": "\u00b2"}, Problem.LENGTH),
        ({"Content-Length": "9" * 30}, Problem.LENGTH),
        ({"Content-Length": "5", "Transfer-Encoding": "chunked"}, Problem.LENGTH),
        ({"Content-Length": "101"}, Problem.SIZE),
    ],
)
def test_lengths_that_are_refused_unread(headers, problem):
    found = refusal(announced_length, request_with(headers), most=100)
    assert found.problem is problem
    assert announced_length(request_with({"Content-Length": "100"}), most=100) == 100


def test_a_body_is_read_to_its_length():
    assert read(request_with({}, b"ab", b"", b"c"), 3) == b"abc"
    for chunks in ((b"ab",), (b"abcd",), (b"ab", None), (b"abc", b"d" * 10**6)):
        assert refusal(read, request_with({}, *chunks), 3).problem is Problem.LENGTH


def test_a_body_that_comes_too_slowly_is_refused():
    slow = request_with({}, b"a", b"b", b"c", wait=0.05)
    assert refusal(read, slow, 3, seconds=0.06).problem is Problem.TIMEOUT


def test_the_window_slides():
    now = [0.0]
    window = RateWindow(2, clock=lambda: now[0])
    for moment in (0.0, 30.0):
        now[0] = moment
        window.enter("aaaa")
    now[0] = 59.5
    assert refusal(window.enter, "aaaa").retry_after == 1
    now[0] = 60.0
    window.enter("aaaa")  # the first is a minute ago
    assert refusal(window.enter, "aaaa").retry_after == 30
    for number in range(20_000):
        window.enter(f"{number}")
    assert len(window._times) <= 10_000


def test_bytes_at_once_are_bounded_in_all_and_for_each_token():
    room = ReadingRoom(100)
    with room.reading("aaaa", 40):
        assert refusal(room.reading("aaaa", 40).__enter__).problem is Problem.RATE
        with room.reading("bbbb", 40):
            assert refusal(room.reading("cccc", 40).__enter__).retry_after == 1
            assert room.taken == 80
    with pytest.raises(ZeroDivisionError), room.reading("aaaa", 40):
        raise ZeroDivisionError
    assert room.taken == 0
    with room.reading("aaaa", 90):  # one upload alone always fits
        assert room.taken == 90


def test_answers_are_sent_at_once():
    """Asyncio asks a socket for its protocol before it switches Nagle's algorithm off."""

    async def is_undelayed():
        seen = asyncio.get_running_loop().create_future()

        def greet(_, writer):
            own = writer.get_extra_info("socket")
            seen.set_result(own.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        listening = run._bound("127.0.0.1:0")
        async with await asyncio.start_server(greet, sock=listening):
            _, writer = await asyncio.open_connection(*listening.getsockname())
            undelayed = await seen
            writer.close()
        return undelayed

    assert asyncio.run(is_undelayed()) == 1


def test_counters_of_several_workers_are_added(tmp_path):
    one, other = Counters(tmp_path), Counters(tmp_path)
    for counters, number in ((one, 3), (other, 4)):
        for _ in range(number):
            counters.count("GET /v1/me", 200)
        counters.add("bytes_received", 10 * number)
        counters.put("released", number)
    one.add("started", 2)
    one.count("GET /nothing", 418)
    (tmp_path / "unfinished").write_bytes(b"")
    text = exposition(tmp_path)
    for line in (
        'torch_holdout_requests_total{method="GET",route="/v1/me",status="200"} 7',
        'torch_holdout_requests_total{method="",route="other",status="500"} 1',
        "torch_holdout_received_bytes_total 70",
        "torch_holdout_releases_told 4",
        "torch_holdout_requests_in_flight 2",
    ):
        assert line in text.splitlines()
    assert not ready(tmp_path)
    one.put("heartbeat", 2**40)
    assert ready(tmp_path)
