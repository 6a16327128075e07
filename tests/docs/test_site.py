"""The site is built without a warning, has every public name, and no dead link."""

import importlib
import json
import pkgutil
import re

import pytest
import torch_holdout

from support.machines.site import (
    ROOT,
    build,
    dead_links,
    loaded_from_elsewhere,
    missing_names,
    outbound_links,
    pages_of,
)


def test_every_public_name_has_its_entry(site, reference):
    assert len(reference.public_names()) > 200
    assert missing_names(site, reference.public_names()) == []


def test_twin_without_an_entry_is_missed(site, reference):
    absent = reference.Name("torch_holdout", "NothingLikeThis")
    elsewhere = reference.Name("torch_holdout.nowhere", "ReusableHoldout")
    assert missing_names(site, [absent, elsewhere]) == [absent.path, elsewhere.path]


def test_a_new_public_name_needs_no_change_of_the_docs(reference, monkeypatch):
    """Its entry, and with it its anchor, comes from `__all__` alone."""
    reference.public_names.cache_clear()
    monkeypatch.setattr(torch_holdout, "__all__", [*torch_holdout.__all__, "brand_new"])
    monkeypatch.setattr(torch_holdout, "brand_new", lambda: None, raising=False)
    try:
        assert "::: torch_holdout.brand_new" in reference.module_page("torch_holdout")
    finally:
        reference.public_names.cache_clear()


def test_every_module_that_exports_names_is_public(reference):
    """A module with an `__all__` is in the list; one that begins with _ cannot be."""
    walked = pkgutil.walk_packages(torch_holdout.__path__, "torch_holdout.")
    names = [each.name for each in walked if not re.search(r"\._", each.name)]
    exporting = {name for name in names if hasattr(importlib.import_module(name), "__all__")}
    assert exporting | {"torch_holdout"} == set(reference.PUBLIC)


def test_defaults_of_the_command_line_are_as_they_are_typed(reference):
    page = reference.command_page()
    purpose = "What the values are for: early-stopping, curve or search."
    assert f"| `--purpose` | {purpose} | `early-stopping` |" in page
    assert "| `--json` | Print one JSON object for machines. |  |" in page


def test_the_command_line_has_groups_and_exit_codes(reference):
    page = reference.command_page()
    for part in (
        "## torch-holdout board plan\n",
        "## torch-holdout status\n",
        "Exit codes: 0 done",
    ):
        assert part in page
    assert "## torch-holdout board\n" not in page


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("# Page\n\n[there](#page)", None),
        ("# Page\n\n[gone](gone.md)", "'gone.md'"),
        ("# Page\n\n[gone](#gone)", "'#gone'"),
        ("# Page\n\n[gone][torch_holdout.Gone]", "cross-reference target 'torch_holdout.Gone'"),
        ("# Page\n\n::: torch_holdout.errors.Gone", "torch_holdout.errors.Gone could not be found"),
    ],
)
def test_twin_with_a_warning_is_not_built(tmp_path, text, problem):
    """With the site's own plugins and rules, on one page."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(text)
    own = {"hooks": [], "nav": ["index.md"], "extra_css": [], "docs_dir": str(tmp_path / "docs")}
    config = {"INHERIT": str(ROOT / "mkdocs.yml"), **own}
    (tmp_path / "mkdocs.yml").write_text(json.dumps(config))  # which is YAML too
    (tmp_path / "torch_holdout").symlink_to(ROOT / "torch_holdout")  # paths are relative to it
    (tmp_path / "docs" / "hooks").symlink_to(ROOT / "docs" / "hooks")
    built = build(tmp_path / "site", tmp_path / "mkdocs.yml")
    assert (built.returncode == 0) == (problem is None), built.stderr
    assert problem is None or problem in built.stderr


def test_no_link_is_dead(site):
    assert len(pages_of(site)) > 25
    assert dead_links(site) == []


def test_nothing_is_fetched_from_elsewhere(site):
    assert loaded_from_elsewhere(site) == []
    assert outbound_links(site) == []


def test_sources_are_not_published(site):
    assert not list(site.rglob("*.py"))
    assert not (site / "hooks").exists()


@pytest.fixture
def small_site(tmp_path):
    (tmp_path / "other.html").write_text('<h1 id="there">x</h1><a name="named"></a>')
    (tmp_path / "style.css").write_text("a { background: url('data:image/png;base64,x') }")
    (tmp_path / "index.html").write_text(
        '<link href="style.css"><a href="other.html#there">x</a><a href="#top" id="top">x</a>'
        '<a href="other.html#named">x</a><a href="mailto:no@where">x</a>'
    )
    return tmp_path


def test_a_sound_site_passes(small_site):
    assert dead_links(small_site) == loaded_from_elsewhere(small_site) == []
    assert outbound_links(small_site) == []


@pytest.mark.parametrize(
    "tag",
    [
        '<a href="gone.html">',
        '<a href="other.html#gone">',
        '<a href="#gone">',
        '<img src="gone.png">',
        '<script src="gone.js">',
        '<a href="../outside.html">',
    ],
)
def test_twin_with_a_dead_link_is_caught(small_site, tag):
    (small_site.parent / "outside.html").write_text("x")
    (small_site / "twin.html").write_text(tag)
    (found,) = dead_links(small_site)
    assert found.startswith("twin.html: ")


@pytest.mark.parametrize(
    "tag",
    [
        '<script src="https://cdn.example/x.js">',
        '<script src="//cdn.example/x.js">',
        '<link href="https://fonts.example/x.css">',
        '<img src="http://counter.example/x.gif">',
    ],
)
def test_twin_that_fetches_is_caught(small_site, tag):
    (small_site / "twin.html").write_text(tag)
    assert len(loaded_from_elsewhere(small_site)) == 1


def test_twin_whose_style_fetches_is_caught(small_site):
    (small_site / "twin.css").write_text('@import "https://fonts.example/x.css";')
    assert len(loaded_from_elsewhere(small_site)) == 1


def test_twin_that_leads_out_is_caught(small_site):
    (small_site / "twin.html").write_text('<a href="https://example.org">')
    assert outbound_links(small_site) == ["twin.html: https://example.org"]


def test_make_builds_it():
    recipe = re.search(r"^docs:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert "mkdocs build --strict" in recipe[1]
