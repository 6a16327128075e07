"""The site in a real browser: nothing fails, is fetched, or is wider than the screen."""

import os
import shutil

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
SWITCHES = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        if os.environ.get("TORCH_HOLDOUT_BROWSER") == "required":
            pytest.fail("TORCH_HOLDOUT_BROWSER=required, but there is no chromium")
        pytest.skip("no chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=SWITCHES)
        yield opened
        opened.close()


def troubles(browser, path, width):
    """Open a file and name what a reader would notice."""
    found = []
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.on("console", lambda said: found.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: found.append(str(error)))
    page.on("request", lambda asked: None if _is_local(asked.url) else found.append(asked.url))
    page.goto(path.as_uri())
    page.wait_for_load_state("networkidle")
    wide, screen = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    if wide > screen:
        found.append(f"{wide} pixels wide on a screen of {screen}")
    page.close()
    return found


def _is_local(url):
    return url.startswith(("file:", "data:", "blob:"))


@pytest.mark.integration
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize(
    "name",
    [
        "index.html",
        "guarantees.html",
        "reference/torch_holdout.html",
        "reference/torch_holdout.bounds.html",  # with the longest formulas
        "reference/cli.html",
    ],
)
def test_a_page_is_shown_without_trouble(browser, site, name, width):
    assert troubles(browser, site / name, width) == []


@pytest.mark.integration
def test_search_works_in_files(browser, site):
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto((site / "index.html").as_uri())
    page.get_by_role("textbox", name="Search").press_sequentially("ReusableHoldout")
    found = page.locator(".md-search-result__link[href*='torch_holdout.ReusableHoldout']").first
    found.wait_for(state="attached", timeout=60_000)
    page.close()


@pytest.mark.integration
@pytest.mark.parametrize(
    ("body", "word"),
    [
        ("<script>nowhere()</script>", "nowhere"),
        ('<img src="gone.png">', "ERR_FILE_NOT_FOUND"),
        ('<img src="http://127.0.0.1:9/x.png">', "127.0.0.1:9"),
        ('<div style="width: 3000px">wide</div>', "pixels wide"),
    ],
)
def test_twin_in_trouble_is_caught(browser, tmp_path, body, word):
    (tmp_path / "twin.html").write_text(f"<!doctype html><body>{body}</body>")
    assert any(word in trouble for trouble in troubles(browser, tmp_path / "twin.html", 390))
