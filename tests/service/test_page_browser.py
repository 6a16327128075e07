"""The page in a real browser, from a server: widths, themes, no script, nothing from elsewhere."""

import base64

import pytest
from torch_holdout.service.server import pages

from support.builders.board_views import VIEWS, ordinary, row, view
from support.builders.stand_in_board import StandInBoard
from support.machines.board_server import in_thread, wait_until
from support.machines.browser import THEMES, chromium, served_problems

__all__ = ["chromium"]

WIDTHS = (1280, 320)
PAGE = "/boards/digits"


class ShownBoard(StandInBoard):
    """A board whose view is given; its pages are at the stand-in's name."""

    shown = ordinary()

    def view(self):
        return self.shown


@pytest.fixture(scope="module")
def board():
    return ShownBoard()


@pytest.fixture(scope="module")
def origin(board, tmp_path_factory):
    with in_thread(board, tmp_path_factory.mktemp("counters")) as address:
        yield address


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", VIEWS)
def test_nothing_is_wrong(chromium, board, origin, name, width, theme):
    board.shown = VIEWS[name]()
    assert served_problems(chromium, origin + PAGE, width=width, theme=theme) == []


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_wrong_without_script(chromium, board, origin, width):
    board.shown = ordinary()
    context = chromium.new_context(
        java_script_enabled=False, viewport={"width": width, "height": 900}
    )
    tab = context.new_page()
    tab.goto(origin + PAGE)
    assert "alpha" in tab.inner_text("main")
    assert tab.locator("noscript meta[http-equiv=refresh]").get_attribute("content") == "60"
    context.close()


def password(token):
    encoded = base64.b64encode(f":{token}".encode()).decode()
    return {"Authorization": f"Basic {encoded}"}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(("page", "token"), [("/team", "team-alpha"), ("/host", "host")])
def test_nothing_is_wrong_with_the_pages_behind_a_password(
    chromium, board, origin, page, token, width
):
    board.shown = ordinary()
    headers = password(token)
    url = origin + PAGE + page
    assert served_problems(chromium, url, width=width, theme="dark", headers=headers) == []


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_wrong_with_the_results_file(chromium, tmp_path, width):
    """As `board close` writes it: one file, opened from the disk, without a server."""
    path = tmp_path / "results.html"
    path.write_text(pages.results_page(VIEWS["closed"]()), encoding="utf-8")
    context = chromium.new_context(offline=True, viewport={"width": width, "height": 900})
    tab, found = context.new_page(), []
    tab.on("console", lambda message: found.append(message.text))
    tab.goto(path.as_uri())
    assert "Final results" in tab.inner_text("main")
    assert tab.evaluate("document.scrollingElement.scrollWidth - innerWidth") <= 0
    assert found == []
    context.close()


def test_the_page_refreshes_itself_and_keeps_the_focus(chromium, board, origin):
    board.shown = ordinary()
    context = chromium.new_context()
    tab = context.new_page()
    tab.clock.install()
    tab.goto(origin + PAGE)
    tab.focus("#json")
    tab.evaluate("document.querySelector('main').dataset.old = 'yes'")
    board.shown = view([row("newcomer", 0.99, rank=(1, 1))])
    tab.clock.run_for(16_000)
    wait_until(
        lambda: tab.evaluate("document.querySelector('main').innerText.includes('newcomer')")
    )
    assert tab.evaluate("document.activeElement.id") == "json"
    asked = []
    tab.on("response", lambda answer: asked.append(answer.status))
    tab.clock.run_for(15_000)
    wait_until(lambda: tab.title() and 304 in asked)
    context.close()


def test_a_server_that_is_away_is_said(chromium, board, origin):
    board.shown = ordinary()
    context = chromium.new_context()
    tab = context.new_page()
    tab.clock.install()
    tab.goto(origin + PAGE)
    context.set_offline(True)
    tab.clock.run_for(16_000)
    wait_until(
        lambda: tab.evaluate(
            "document.getElementById('age').textContent.includes('cannot be reached')"
        )
    )
    context.set_offline(False)
    tab.clock.run_for(16_000)
    wait_until(lambda: tab.inner_text("#age") == "")
    assert "alpha" in tab.inner_text("main")
    context.close()


TWINS = {
    "a script from elsewhere": ("</main>", '<script src="http://example.invalid/x.js"></script>'),
    "an inline script": ("</main>", "<script>document.title = 'mine'</script>"),
    "an inline style": ("</main>", '<p style="color:red">red</p>'),
    "too wide": ("</main>", '<svg width="3000" height="10"></svg>'),
}


@pytest.mark.parametrize("twin", TWINS)
def test_twins_are_caught(chromium, board, origin, monkeypatch, twin):
    where, instead = TWINS[twin]
    board.shown = view([row(twin, 0.9)])
    whole = pages.board_page
    from torch_holdout.service.server import rendered

    monkeypatch.setattr(
        rendered, "board_page", lambda shown: whole(shown).replace(where, instead + where)
    )
    assert served_problems(chromium, origin + PAGE, width=1280, theme="light") != []
