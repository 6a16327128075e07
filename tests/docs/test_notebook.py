"""The notebook is the tutorial's page, executed: the page's blocks run in test_pages.py.

So a cell that fails, fails there; here nothing may differ between the two, nor an output be old.
"""

import base64
import json
import re
import sys

import pytest

from support.machines.site import ROOT, blocks, shown_outputs

PAGE = (ROOT / "docs" / "tutorial.md").read_text()
PATH = ROOT / "examples" / "tutorial.ipynb"
NOTEBOOK = json.loads(PATH.read_text())
CODE = [cell for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]
PICTURES = ("answers.png", "closing.png", "claims.png")


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    import notebook

    yield notebook
    del sys.modules["notebook"]


def bare(cells):
    """Return cells as the page has them: without what running them adds."""
    added = {"execution_count", "outputs"}
    return [{key: cell[key] for key in cell.keys() - added} for cell in cells]


def printed(cell):
    return "".join(
        line for out in cell["outputs"] if out["output_type"] == "stream" for line in out["text"]
    )


def wrong_outputs(page, code):
    """Name the blocks whose output on the page is not the one in the notebook."""
    shown = shown_outputs(page)
    return [number for number, text in shown.items() if printed(code[number + 1]) != text]


def test_its_cells_are_those_of_the_page(script):
    assert bare(script.cells(PAGE)) == bare(NOTEBOOK["cells"])
    sources = ["".join(cell["source"]) for cell in CODE]
    assert sources == [script.FIRST.strip(), *map(str.strip, blocks(PAGE, "python"))]


def test_twin_with_another_number_or_word_is_caught(script):
    for old, new in (("max_epochs=40", "max_epochs=41"), ("Read it slowly", "Read it")):
        assert bare(script.cells(PAGE.replace(old, new))) != bare(NOTEBOOK["cells"])


def test_the_page_shows_what_the_notebook_printed():
    assert len(shown_outputs(PAGE)) >= 10
    assert wrong_outputs(PAGE, CODE) == []


def test_twin_with_an_old_output_is_caught():
    number = next(n for n, text in shown_outputs(PAGE).items() if "lies in" in text)
    assert wrong_outputs(PAGE.replace("0.9600 lies", "0.9601 lies"), CODE) == [number]


def test_it_was_run_from_top_to_bottom_without_an_error():
    assert [cell["execution_count"] for cell in CODE] == [*range(1, len(CODE) + 1)]
    kinds = {out["output_type"] for cell in CODE for out in cell["outputs"]}
    assert kinds == {"stream", "display_data"}


def test_its_pictures_are_in_it_and_on_the_page():
    drawn = [out["data"] for c in CODE for out in c["outputs"] if "data" in out]
    assert len(drawn) == len(PICTURES)
    for data, name in zip(drawn, PICTURES, strict=True):
        assert base64.b64decode(data["image/png"]).startswith(b"\x89PNG")
        assert f"](assets/{name})" in PAGE
        for twin in (name, name.replace(".png", "-dark.png")):
            assert (ROOT / "docs" / "assets" / twin).stat().st_size > 10_000


def test_it_is_small_and_names_no_machine():
    text = PATH.read_text()
    assert len(text) < 500_000
    said = "".join(printed(cell) for cell in CODE)
    assert "/tmp/" not in said
    assert "/home/" not in said
    for target in links(text):
        assert (PATH.parent / target).exists(), target


def links(text):
    """Return the files that the notebook's text links to."""
    return {found.partition("#")[0] for found in re.findall(r"\]\((\.\./[^)\\]+)\)", text)}
