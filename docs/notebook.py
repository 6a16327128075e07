"""Run the tutorial and keep what it prints and draws: ``python docs/notebook.py``.

Its only source is docs/tutorial.md: the page's Python blocks are the notebook's cells, and its text
is theirs. Writes examples/tutorial.ipynb, and the page's pictures for light and dark pages to
docs/assets. Takes half a minute, and needs Chromium for the picture of the report.
"""

import base64
import contextlib
import io
import json
import re
import shutil
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt
from pictures import dark, in_both

DOCS = Path(__file__).resolve().parent
ASSETS = DOCS / "assets"
PAGE, NOTEBOOK = DOCS / "tutorial.md", DOCS.parent / "examples" / "tutorial.ipynb"
SCREEN = {"width": 1000, "height": 720}
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
ABOUT = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
SAVED = re.compile(r'savefig\("([\w.]+)"\)')
FIRST = """\
import os
import tempfile

os.chdir(tempfile.mkdtemp())  # ledgers and pictures go there; in a project a ledger is kept
"""
BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```\n(?:\n```text\n.*?^```\n)?", re.M | re.S)
WARNING = re.compile(r'^!!! \w+ "(?P<title>.*)"\n(?P<body>(?:    .*\n)+)', re.M)


def cells(page):
    """Return the notebook's cells, without outputs."""
    parts = BLOCK.split(page)  # text, code, text, ...
    drawn = set(SAVED.findall(page))
    found = []
    for number, part in enumerate(parts):
        code = number % 2
        text = part if code else _text(part, drawn)
        if text.strip():
            found.append(_cell("code" if code else "markdown", text.strip()))
    return [found[0], _cell("code", FIRST.strip()), *found[1:]]


def _cell(kind, text):
    source = text.splitlines(keepends=True)
    more = {"execution_count": None, "outputs": []} if kind == "code" else {}
    return {"cell_type": kind, "metadata": {}, "source": source, **more}


def _text(part, drawn):
    """Return a page's text for a notebook in examples/: links, notes, no picture a cell draws."""
    part = re.sub(r"!\[[^]]*\]\(assets/([\w.]+)\)\n", lambda m: "" if m[1] in drawn else m[0], part)
    part = re.sub(r"\]\((?!#|http)([^)]+)\)", r"](../docs/\1)", part)
    return WARNING.sub(
        lambda m: f"> **{m['title']}.** " + re.sub(r"^ +", "", m["body"], flags=re.M), part
    )


def run(notebook):
    """Run the code cells, put what they print and draw into them, and return their namespace."""
    names = {"__name__": "__main__"}
    for count, cell in enumerate((c for c in notebook if c["cell_type"] == "code"), 1):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile("".join(cell["source"]), f"cell {count}", "exec"), names)  # noqa: S102
        lines = out.getvalue().splitlines(keepends=True)
        printed = {"output_type": "stream", "name": "stdout", "text": lines}
        cell |= {"execution_count": count, "outputs": [printed] * bool(lines) + _drawn()}
    return names


def _drawn():
    pictures = []
    for number in plt.get_fignums():
        png = io.BytesIO()
        plt.figure(number).savefig(png, format="png", dpi=80)
        plt.close(number)
        data = {"image/png": base64.b64encode(png.getvalue()).decode()}
        pictures.append({"output_type": "display_data", "metadata": {}, "data": data})
    return pictures


def keep_pictures(notebook, names):
    """Draw what the cells save in both styles, for the page."""
    for cell in notebook:
        code = "".join(cell["source"])
        for name in SAVED.findall(code) if cell["cell_type"] == "code" else ():

            def draw(path, code=code, name=name):
                with contextlib.redirect_stdout(io.StringIO()):
                    exec(code, names)  # noqa: S102
                plt.close("all")
                shutil.move(name, path)

            in_both(draw, ASSETS / name)


def photograph(page, target):
    """Photograph the top of a page as a light and as a dark screen show it."""
    from playwright.sync_api import sync_playwright

    switches = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with sync_playwright() as playwright:
        found = {"executable_path": shutil.which("chromium"), "args": switches}
        browser = playwright.chromium.launch(**found)
        for scheme, place in (("light", target), ("dark", dark(target))):
            screen = browser.new_page(viewport=SCREEN, color_scheme=scheme)
            screen.goto(page.resolve().as_uri())
            screen.screenshot(path=place)
        browser.close()


def main():
    """Write the notebook and the page's pictures."""
    made = cells(PAGE.read_text())
    names = run(made)  # its first cell goes to a folder of its own
    keep_pictures(made, names)
    photograph(Path("report.html"), ASSETS / "report.png")
    whole = {"cells": made, "metadata": ABOUT, "nbformat": 4, "nbformat_minor": 4}
    NOTEBOOK.write_text(json.dumps(whole, indent=1) + "\n")


if __name__ == "__main__":
    main()
