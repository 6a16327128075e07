"""The page in a real browser: at two widths, in both themes, and twins that must be caught."""

import pytest
import torch_holdout as th
from torch_holdout.report import summarise, write

from support.builders.holdouts import ask, make_holdout
from support.builders.reports import Retold, charged_records, empty, hostile_names, several_runs
from support.builders.sealed import months_of_runs, sealed_runs
from support.machines.browser import THEMES, WIDTHS, chromium, problems

__all__ = ["chromium"]


def several(url):
    several_runs(url, together=False, budget=80, mechanism=th.Ladder(step=0.01))
    charged_records(url)
    make_holdout(url, name="fresh").status()


def exhausted(url):
    several_runs(url, budget=24, delta=1e-6, seed=None)


def many_runs(url):
    holdout = make_holdout(url, size=400, budget=60)
    for i in range(50):
        with th.named_run(f"trial {i}"):
            ask(holdout, 100 + 5 * i, f"{i}")


def sealed(url):
    sealed_runs(url)


def one_sealed_run(url):
    months_of_runs(url, runs=1)


def closed(url):
    sealed_runs(url)[0].close()
    several_runs(
        url, name="live", together=False, budget=80, mechanism=th.Ladder(step=0.01), seed=None
    ).close()


LEDGERS = {
    "sealed runs": (sealed, 0),
    "one sealed run": (one_sealed_run, 0),
    "months of sealed runs": (months_of_runs, 0),
    "closed": (closed, 6),
    "several runs": (several, 3),
    "exhausted": (exhausted, 2),
    "many runs": (many_runs, 1),
    "hostile names": (hostile_names, 7),
    "empty": (empty, 0),
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Every page, written once."""
    folder = tmp_path_factory.mktemp("pages")
    found = {}
    for name, (make, charts) in LEDGERS.items():
        label = name.replace(" ", "-")
        ledger = Retold(f"memory://browser-{label}")
        make(f"memory://browser-{label}")
        found[name] = (write(summarise(ledger), folder / f"{label}.html"), charts)
    return found


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", LEDGERS)
def test_nothing_is_wrong(chromium, pages, name, width, theme):
    path, charts = pages[name]
    assert problems(chromium, path, width=width, theme=theme, charts=charts) == []


@pytest.mark.parametrize("width", [360, 600, 880, 881, 1000, 1920])
def test_widths_between(chromium, pages, width):
    path, charts = pages["exhausted"]
    assert problems(chromium, path, width=width, theme="light", charts=charts) == []


LABEL = '<text x="90" y="99">on me</text>'
TWINS = {
    "too wide": ("<main>", '<main><p style="width:2000px">wide</p>', "wider than the window"),
    "a script that fails": ("<main>", "<main><script>nope()</script>", "nope"),
    "a script": ("<main>", "<main><script>console.log('here')</script>", "here"),
    "something loaded": ("<main>", '<main><img src="http://example.invalid/x.png">', "requests"),
    "pale text": ("<main>", '<main><p style="color:#888888">pale</p>', "contrast"),
    "small text": ("<main>", '<main><p style="font-size:9px">small</p>', "9.0 px"),
    "labels on each other": ("</svg>", f"{2 * LABEL}</svg>", "overlap"),
    "a label outside": ("</svg>", '<text x="3000" y="50">out</text></svg>', "out of its chart"),
    "no size": ("figure > svg {", "figure > svg { max-height: 3px;", "a chart has no size"),
    "no chart": ("<figure>", "<figure hidden>", "0 charts instead of 2"),
}


def problems_of_a_twin(chromium, pages, folder, where="", instead=""):
    """The policy would stop a script and a picture; without it they must still be noticed."""
    path, charts = pages["exhausted"]
    text = path.read_text(encoding="utf-8").replace("Content-Security-Policy", "X-Nothing")
    assert where in text
    twin = text.replace(where, instead) if where else text
    (folder / "twin.html").write_text(twin, encoding="utf-8")
    return problems(chromium, folder / "twin.html", width=1280, theme="light", charts=charts)


@pytest.mark.parametrize("twin", TWINS)
def test_twins_are_caught(chromium, pages, tmp_path, twin):
    where, instead, word = TWINS[twin]
    found = problems_of_a_twin(chromium, pages, tmp_path, where, instead)
    assert any(word in problem for problem in found), found


def test_twins_have_no_other_fault(chromium, pages, tmp_path):
    assert problems_of_a_twin(chromium, pages, tmp_path) == []


def test_the_policy_stops_a_script(chromium, pages, tmp_path):
    path, _ = pages["empty"]
    text = path.read_text(encoding="utf-8")
    twin = text.replace("<main>", "<main><script>document.title = 'mine'</script>")
    (tmp_path / "twin.html").write_text(twin, encoding="utf-8")
    context = chromium.new_context()
    tab = context.new_page()
    tab.goto((tmp_path / "twin.html").as_uri())
    assert tab.title() == "Holdout report"
    context.close()
