"""board.toml is read strictly: a wrong line is named, and nothing is guessed."""

from pathlib import Path

import pytest
from torch_holdout.errors import HoldoutError
from torch_holdout.service.server.config import read_config

from support.builders.boards import GATE, PARTS, RECORD, SEALED, TEXT, configured

ROOT = Path(__file__).parents[2]


def test_every_mode_is_read(tmp_path):
    for number, parts in enumerate(({}, SEALED, GATE, RECORD)):
        config = configured(tmp_path / str(number), **parts)
        assert config.first == "accuracy"
        assert config.server.listen == "127.0.0.1:8700"
    assert config.limits.failure == 0.05


def test_the_example_configuration_is_read():
    config = read_config(ROOT / "configs" / "board.toml")
    assert config.feedback.mode == "ladder"
    assert config.limits.teams * config.limits.releases <= config.limits.budget


def test_paths_are_those_of_its_folder(tmp_path):
    config = configured(tmp_path / "board")
    assert config.folder == tmp_path / "board"
    assert config.ledger_url == f"sqlite:///{tmp_path}/board/board.db"


WRONG = {
    "a name of other letters": {"board": 'nothing = "here"'},
    "unknown key": {"limits": PARTS["limits"] + "\nteam = 5"},
    "a number as text": {"limits": 'teams = "5"\nsubmissions = 10\nreleases = 4\nbudget = 20'},
    "quotas above the budget": {"limits": "teams = 5\nsubmissions = 10\nreleases = 5\nbudget = 20"},
    "budget without releases": {"limits": "teams = 5\nsubmissions = 10\nbudget = 20"},
    "no releases for a ladder": {"limits": "teams = 5\nsubmissions = 10"},
    "a ladder without a baseline": {"feedback": 'mode = "ladder"\nstep = 0.01'},
    "a gate with a baseline": {"feedback": 'mode = "gate"\nbaseline = 0.5'},
    "a margin without its rule": {"feedback": 'mode = "gate"\nmargin = 0.005'},
    "sealed with a public part": {"feedback": 'mode = "sealed"', "limits": SEALED["limits"]},
    "no feedback without being sealed": {"data": SEALED["data"]},
    "log loss of classes": {"statistics": '[statistics.loss]\nkind = "cross_entropy"\nhigh = 5.0'},
    "log loss without a bound": {"statistics": '[statistics.loss]\nkind = "cross_entropy"'},
    "five statistics": {
        "statistics": "\n".join(f'[statistics.a{n}]\nkind = "accuracy"' for n in range(5))
    },
    "a share above one": {"data": 'classes = 10\nupload = "classes"\npublic = 1.5'},
    "not a number": {"feedback": 'mode = "ladder"\nbaseline = nan\nstep = 0.01'},
    "open to the world": {"server": '[server]\nlisten = "0.0.0.0:8700"'},
    "an open admin port": {"server": '[server]\nadmin = "0.0.0.0:8701"'},
    "half a certificate": {"server": '[server]\ncertfile = "cert.pem"'},
    "a password": {"ledger": "postgresql+psycopg://holdout:secret@host/db"},
    "another database": {"ledger": "mysql://host/db"},
    "a time without a zone": {"board": "closes = 2026-12-01T12:00:00"},
    "a time beyond UTC's": {"board": "closes = 9999-12-31T23:59:59-12:00"},
    "a time before UTC's": {"board": "closes = 0001-01-01T00:00:00+14:00"},
    "no file's name": {"data": f'ids = "a\\u0000b"\n{PARTS["data"]}'},
}


@pytest.mark.parametrize("parts", WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_a_sentence(tmp_path, parts):
    with pytest.raises(HoldoutError, match=r"Expected a complete board.toml") as raised:
        configured(tmp_path, **parts)
    assert "secret" not in str(raised.value)


def test_what_is_no_toml_is_a_sentence(tmp_path):
    path = tmp_path / "board.toml"
    for content in (b"[board", b"\xff\xfe", b"x" * 1_000_001, b"a = " + b"[" * 50_000):
        path.write_bytes(content)
        with pytest.raises(HoldoutError, match=r"board.toml"):
            read_config(path)
    with pytest.raises(HoldoutError, match="there is none"):
        read_config(tmp_path / "other.toml")


def test_it_cannot_be_changed(tmp_path):
    config = configured(tmp_path)
    with pytest.raises(ValueError, match="frozen"):
        config.limits.budget = 10**6


@pytest.mark.parametrize("name", ["", "Digits", "a/b", "a" * 61, "a b"])
def test_a_name_stands_in_addresses(tmp_path, name):
    text = TEXT.format(**PARTS).replace('"digits"', f'"{name}"')
    (tmp_path / "board.toml").write_text(text)
    with pytest.raises(HoldoutError, match=r"board.name"):
        read_config(tmp_path / "board.toml")
