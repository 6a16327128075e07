"""Real servers: a stop that answers what was begun, kills under load, several workers."""

import contextlib
import hashlib
import os
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time

import httpx
import psutil
import pytest
from torch_holdout._noise.fixed import fixed_integers
from torch_holdout.cli import app
from torch_holdout.ledger import verify
from torch_holdout.service.server import hosting, run
from typer.testing import CliRunner

from support.builders import boards
from support.machines.board_server import serving, wait_until
from support.machines.soak import soak

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SERVER = '[server]\nlisten = "127.0.0.1:0"\nadmin = "127.0.0.1:0"\nworkers = {workers}\n'
SERVER += "requests_per_minute = 1000000"
PLENTY = "teams = 5\nsubmissions = 5000\nreleases = 20\nbudget = 100"


def made(folder, *teams, workers=1, **parts):
    """Make a board for servers on free ports; return its file, and a token for each team."""
    config = boards.configured(folder, server=SERVER.format(workers=workers), **parts)
    hosting.initialise(config)
    return folder / "board.toml", {team: hosting.add_team(config, team) for team in teams}


class Team:
    """A team that submits; what it was told is kept."""

    def __init__(self, token):
        self.headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/x-npy"}
        self.told, self.sent = {}, {}

    def put(self, url, body):
        """Send a body; return the answer, or None where the connection broke."""
        sha = hashlib.sha256(body).hexdigest()
        self.sent[sha] = body
        try:
            answer = httpx.put(
                f"{url}/v1/boards/digits/submissions/{sha}",
                content=body, headers=self.headers, timeout=60,
            )  # fmt: skip
        except httpx.TransportError:
            return None
        if answer.status_code in (200, 201):
            self.told.setdefault(sha, answer.json())
        return answer

    def known(self, url):
        """Return what the server says that this team has submitted."""
        answer = httpx.get(
            f"{url}/v1/boards/digits/submissions?limit=1000", headers=self.headers, timeout=60
        )
        return {own["submission"]: own for own in answer.json()["submissions"]}


def bodies(number, seed):
    """Return different uploads, of rising accuracy."""
    for i in range(number):
        right = 560 + (37 * i + 11 * seed) % 400
        yield boards.npy(boards.guesses(right, start=i, shift=1 + (seed + i) % 9))


def same(one, other):
    """Whether two answers say the same; a repeat says it again."""
    keys = ("submission", "position", "better", "results", "chain")
    return all(one[key] == other[key] for key in keys)


@pytest.mark.timeout(300)
def test_a_server_answers_starts_and_stops(tmp_path):
    path, tokens = made(tmp_path / "board", "alpha")
    team = Team(tokens["alpha"])
    with serving(path, tmp_path / "log") as server:
        (body,) = bodies(1, 0)
        assert team.put(server.url, body).status_code == 201
        assert httpx.get(f"{server.admin}/healthz").text == "ok\n"
        wait_until(lambda: httpx.get(f"{server.admin}/readyz").status_code == 200)
        assert "answers_total 1" in httpx.get(f"{server.admin}/metrics").text
        assert httpx.get(f"{server.url}/healthz").status_code == 404
        assert httpx.get(f"{server.admin}/v1/boards/digits").status_code == 404
        assert endless_header(server.url) < 10_000_000
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
    with serving(path, tmp_path / "log") as server:
        assert same(team.put(server.url, body).json(), team.told[hashlib.sha256(body).hexdigest()])
    log = (tmp_path / "log").read_text()
    assert "Traceback" not in log
    assert tokens["alpha"] not in log


def endless_header(url):
    """Send a header without an end; return how many bytes of it the server let in."""
    sent = 0
    place = url.removeprefix("http://").split(":")
    with contextlib.suppress(ConnectionError), socket.create_connection(place, 60) as line:
        line.sendall(b"GET / HTTP/1.1\r\nHost: board\r\nX: ")
        while sent < 50_000_000:
            line.sendall(b"x" * 100_000)
            sent += 100_000
    return sent


def test_addresses_are_said_as_json_too(monkeypatch):
    monkeypatch.setattr(run, "serve", lambda config, announce: announce("PAGE", "ADMIN"))
    assert CliRunner().invoke(app, ["serve", "board.toml", "--json"]).stdout == (
        '{"page": "PAGE", "admin": "ADMIN"}\n'
    )


@pytest.mark.timeout(300)
def test_sigterm_answers_what_was_begun(tmp_path):
    """The body is still on its way when the signal comes."""
    path, tokens = made(tmp_path / "board", "alpha")
    (body,) = bodies(1, 0)
    sha = hashlib.sha256(body).hexdigest()
    with serving(path, tmp_path / "log") as server:

        def slowly():
            yield body[:500]
            wait_until(lambda: "in_flight 1" in httpx.get(f"{server.admin}/metrics").text)
            server.signal(signal.SIGTERM)
            time.sleep(1.5)
            yield body[500:]

        headers = Team(tokens["alpha"]).headers | {"Content-Length": str(len(body))}
        answer = httpx.put(
            f"{server.url}/v1/boards/digits/submissions/{sha}",
            content=slowly(), headers=headers, timeout=60,
        )  # fmt: skip
        assert answer.status_code == 201
        assert server.wait() == 0


def load(team, url, seed, until, number=400):
    """Submit until told to stop, or until the server is gone."""
    for body in bodies(number, seed):
        if until.is_set() or team.put(url, body) is None:
            return


@pytest.mark.soak
@pytest.mark.timeout(soak(7200, 600))
def test_kills_under_load_lose_and_repeat_nothing(tmp_path):
    """What was acknowledged is in the ledger and repeats equal; nothing is charged twice."""
    path, tokens = made(tmp_path / "board", "alpha", "beta", limits=PLENTY)
    teams = [Team(token) for token in tokens.values()]
    waits = fixed_integers(1500, (soak(50, 2),), seed=20).tolist()
    for kill, wait in enumerate(waits):
        with serving(path, tmp_path / "log") as server:
            require_all_kept(teams, server.url)
            ended = threading.Event()
            threads = [
                threading.Thread(target=load, args=(team, server.url, 100 * kill + i, ended))
                for i, team in enumerate(teams)
            ]
            before = sum(len(team.told) for team in teams)
            for thread in threads:
                thread.start()
            wait_until(lambda: sum(len(team.told) for team in teams) > before)  # noqa: B023
            time.sleep(wait / 1000)
            server.kill()
            ended.set()
            for thread in threads:
                thread.join()
    with serving(path, tmp_path / "log") as server:
        require_all_kept(teams, server.url)
    assert not verify(f"sqlite:///{tmp_path}/board/board.db").findings
    assert "Traceback" not in (tmp_path / "log").read_text()


def require_all_kept(teams, url):
    """Raise unless every acknowledged answer is there, and each submission was charged once."""
    for team in teams:
        known = team.known(url)
        assert set(team.told) <= set(known) <= set(team.sent)
        for sha, told in team.told.items():
            assert same(told, known[sha])
        for sha in set(team.sent) - set(known):  # never answered: now it is, once
            assert team.put(url, team.sent[sha]).status_code == 201
        quota = httpx.get(f"{url}/v1/me", headers=team.headers).json()["quota"]
        assert quota["submissions_left"] == 5000 - len(team.known(url))
        for sha in list(team.sent)[-3:]:
            again = team.put(url, team.sent[sha])
            assert (again.status_code, again.json()["kind"]) == (200, "repeat")
            assert same(again.json(), team.told[sha])


def flood(url, token, number=24, threads=8):
    """Submit different files at the same time with one token; return the statuses."""
    files, statuses, lock = list(bodies(number, 3)), [], threading.Lock()

    def work():
        team = Team(token)
        while True:
            with lock:
                if not files:
                    return
                body = files.pop()
            status = team.put(url, body).status_code
            with lock:
                statuses.append(status)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return statuses


LITTLE = "teams = 5\nsubmissions = 7\nreleases = 3\nbudget = 15"


@pytest.mark.timeout(300)
def test_two_workers_share_one_quota_on_sqlite(tmp_path):
    path, tokens = made(tmp_path / "board", "alpha", workers=2, limits=LITTLE)
    with serving(path, tmp_path / "log") as server:
        require_one_quota(server, tokens["alpha"])
        server.signal(signal.SIGTERM)
        assert server.wait() == 0


@pytest.mark.timeout(300)
def test_two_workers_share_one_quota_on_postgresql(tmp_path, postgres):
    url = postgres.new_url()
    path, tokens = made(tmp_path / "board", "alpha", workers=2, limits=LITTLE, ledger=url)
    with serving(path, tmp_path / "log") as server:
        require_one_quota(server, tokens["alpha"])
    assert not verify(url).findings


def require_one_quota(server, token):
    """Raise unless 7 submissions at most are answered, of which 3 at most are told."""
    statuses = flood(server.url, token)
    team = Team(token)
    known = team.known(server.url)
    told = [answer for answer in known.values() if answer["kind"] == "release"]
    assert len(told) <= 3
    assert statuses.count(201) == len(known) <= 7
    assert statuses.count(409) == len(statuses) - len(known)
    quota = httpx.get(f"{server.url}/v1/me", headers=team.headers).json()["quota"]
    left = {"submissions_left": 7 - len(known), "releases_left": 3 - len(told)}
    assert quota == left | {"submissions": 7, "releases": 3}
    assert 0 in left.values()


@pytest.mark.timeout(300)
def test_a_worker_that_is_killed_comes_back(tmp_path):
    path, tokens = made(tmp_path / "board", "alpha", workers=2)
    with serving(path, tmp_path / "log") as server:
        team = Team(tokens["alpha"])
        first, second = bodies(2, 1)
        assert team.put(server.url, first).status_code == 201

        old = set(workers_of(server))
        assert len(old) == 2
        os.kill(min(old), signal.SIGKILL)
        wait_until(lambda: len(workers_of(server)) == 2 and set(workers_of(server)) != old)
        assert team.put(server.url, second).status_code == 201
        assert team.put(server.url, first).json()["kind"] == "repeat"
        assert {told["position"] for told in team.told.values()} == {1, 2}
        server.process.kill()  # nobody is left to stop the workers: they stop by themselves
        wait_until(lambda: not workers_of(server))


def workers_of(server):
    """Return the processes of a server's group that serve, by id."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            own = os.getpgid(process.pid) == server.process.pid
            if own and "spawn_main" in " ".join(process.cmdline()):
                found.append(process.pid)
    return found


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl makes a certificate")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("workers", [1, 2])
def test_a_certificate_makes_it_https(tmp_path, workers):
    folder = tmp_path / "board"
    path, tokens = made(folder, "alpha")
    path.write_text(
        path.read_text().replace(
            "workers = 1", f'workers = {workers}\ncertfile = "cert.pem"\nkeyfile = "key.pem"'
        )
    )
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=board -addext"
    subprocess.run(
        [*command.split(), "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "cert.pem"],
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip
    trusted = ssl.create_default_context(cafile=folder / "cert.pem")
    with serving(path, tmp_path / "log") as server:
        assert server.url.startswith("https://127.0.0.1:")
        headers = Team(tokens["alpha"]).headers
        answer = httpx.get(f"{server.url}/v1/me", headers=headers, verify=trusted, timeout=60)
        assert answer.json()["team"] == "alpha"
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{server.url.replace('https', 'http')}/v1/me", timeout=60)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl makes a certificate")
def test_a_certificate_that_cannot_be_served_is_a_sentence(tmp_path):
    """Before anything listens: workers would fail, and be started again, for ever."""
    path, _ = made(tmp_path)
    for command in (
        "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=board -keyout key.pem -out cert.pem",
        "genrsa -out other.pem 2048",
        "rsa -aes128 -passout pass:phrase -in key.pem -out phrase.pem",
    ):
        subprocess.run(["openssl", *command.split()], cwd=tmp_path, check=True, capture_output=True)
    text = path.read_text()
    for cert, key, words in (
        ("cert.pem", "nothing.pem", "nothing.pem cannot be read: there is none"),
        ("nothing.pem", "key.pem", "nothing.pem cannot be read: there is none"),
        ("cert.pem", "other.pem", "KEY_VALUES_MISMATCH"),
        ("cert.pem", "phrase.pem", "they are not"),
        ("cert.pem", "board.toml", "they are not"),
    ):
        pair = f'workers = 2\ncertfile = "{cert}"\nkeyfile = "{key}"'
        path.write_text(text.replace("workers = 1", pair))
        found = CliRunner().invoke(app, ["serve", str(path)])
        assert found.exit_code == 2
        assert words in found.stderr
        assert "Serving" not in found.stdout


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("127.0.0.1:0", "0.0.0.0:0"), "expected certfile and keyfile, or behind_proxy"),
        (('"Digits"', '"Digits"\nname2 = 1'), "board.toml"),
        (("0.55", "0.5"), "baseline"),
    ],
)
def test_what_is_wrong_is_a_sentence(tmp_path, change, words):
    path, _ = made(tmp_path / "board")
    path.write_text(path.read_text().replace(*change, 1))
    found = CliRunner().invoke(app, ["serve", str(path)])
    assert found.exit_code == 2
    assert words in found.output
    assert "Traceback" not in found.output
