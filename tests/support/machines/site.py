"""What is wrong with a built site, or with a page's source; every function names it."""

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).parents[3]
# What a tag loads by itself; <a> only leads somewhere.
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}


def build(folder: Path, config: Path = ROOT / "mkdocs.yml") -> subprocess.CompletedProcess:
    """Build the site as `make docs` does, from this checkout; a warning is a failure.

    (Not `--quiet`: what is not logged is not counted as a warning either.)
    """
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", config, "-d", folder]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [str(word) for word in command], env=environment, capture_output=True, text=True
    )


class Page(HTMLParser):
    """The ids, links and loaded files of an HTML page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {key: value or "" for key, value in attrs}
        self.ids |= {given[key] for key in ("id", "name") if key in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if LOADED.get(tag, "") in given:
            self.loaded.append(given[LOADED[tag]])


def pages_of(site: Path) -> dict[Path, Page]:
    """Read every page."""
    return {path: Page(path) for path in sorted(site.rglob("*.html"))}


def dead_links(site: Path) -> list[str]:
    """Name every relative link whose file, or whose place in it, does not exist."""
    pages = pages_of(site)
    found = []
    for path, page in pages.items():
        for link in [*page.links, *page.loaded]:
            parts = urlsplit(link)
            if not parts.scheme and not parts.netloc and _is_dead(path, parts, site, pages):
                found.append(f"{path.relative_to(site)}: {link}")
    return found


def _is_dead(path: Path, parts, site: Path, pages: dict[Path, Page]) -> bool:
    if path.name == "404.html" and parts.path.startswith("/"):  # served from anywhere
        path, target = site / "404.html", (site / unquote(parts.path[1:])).resolve()
    else:
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    target = target / "index.html" if target.is_dir() else target
    if not target.is_file() or not target.is_relative_to(site.resolve()):
        return True
    fragment = unquote(parts.fragment)
    return bool(fragment) and target in pages and fragment not in pages[target].ids


def loaded_from_elsewhere(site: Path) -> list[str]:
    """Name everything that a page or a stylesheet would fetch from another host."""
    found = [
        f"{path.relative_to(site)}: {address}"
        for path, page in pages_of(site).items()
        for address in page.loaded
        if urlsplit(address).netloc
    ]
    for path in sorted(site.rglob("*.css")):
        text = path.read_text()
        addresses = re.findall(r"(?:@import\s*|url\()\s*[\"']?((?:https?:)?//[^\"')\s]+)", text)
        found += [f"{path.relative_to(site)}: {address}" for address in addresses]
    return found


def outbound_links(site: Path) -> list[str]:
    """Name every link that leads out of the site."""
    return [
        f"{path.relative_to(site)}: {link}"
        for path, page in pages_of(site).items()
        for link in page.links
        if urlsplit(link).netloc
    ]


def missing_names(site: Path, names: Iterable) -> list[str]:
    """Name every public name without an entry on its module's page."""
    pages = pages_of(site)
    found = []
    for name in names:
        page = pages.get(site / "reference" / f"{name.module}.html")
        if page is None or name.path not in page.ids:
            found.append(name.path)
    return found


def blocks(text: str, *languages: str) -> list[str]:
    """Return a page's fenced blocks in these languages, as they are run."""
    fence = re.compile(
        r"^(?P<indent> *)(?P<marks>`{3,})(?P<language>[\w-]*)[^\n`]*\n(?P<body>.*?)^ *(?P=marks)$",
        re.MULTILINE | re.DOTALL,
    )
    return [
        re.sub(rf"^{found['indent']}", "", found["body"], flags=re.MULTILINE)
        for found in fence.finditer(text)
        if found["language"] in languages
    ]


def run_blocks(text: str, name: str) -> list[str]:
    """Run a page's Python blocks in order, in one namespace; return what each printed."""
    names: dict = {"__name__": "__main__"}
    printed = []
    for number, block in enumerate(blocks(text, "python", "py", "python3"), 1):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(block, f"{name}, block {number}", "exec"), names)
        printed.append(out.getvalue())
    return printed


def shown_outputs(text: str) -> dict[int, str]:
    """Return what a page says its Python blocks print: a text block right below one."""
    python = re.compile(
        r"^```python[^\n]*\n.*?^```$(?:\n\n```text\n(?P<shown>.*?)^```$)?", re.MULTILINE | re.DOTALL
    )
    found = enumerate(python.finditer(text))
    return {number: block["shown"] for number, block in found if block["shown"] is not None}


def commands(text: str) -> Iterator[str]:
    """Yield what a page tells the reader to type: one logical line each, without the prompt."""
    for block in blocks(text, "console", "bash", "sh", "shell", ""):
        for line in block.replace("\\\n", " ").splitlines():
            typed = line.strip().removeprefix("$ ").strip()
            if re.match(r"(torch-holdout|make|python3?) ", typed):
                yield typed


def wrong_commands(text: str) -> list[str]:
    """Name every command that does not exist as it is written; of one within a line, its name."""
    found = [f"{line}: {problem}" for line in commands(text) if (problem := _problem(line))]
    inline = re.findall(r"(?<!`)`(torch-holdout|make) ([a-z][\w-]*)[^`\n]*`(?!`)", text)
    known = {"torch-holdout": _commands(), "make": _targets()}
    return found + [f"{tool} {name}" for tool, name in inline if name not in known[tool]]


def _targets() -> set[str]:
    return set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def _commands() -> dict:
    import typer
    from torch_holdout.cli import app

    return typer.main.get_command(app).commands


def _problem(typed: str) -> str | None:
    words = shlex.split(typed, comments=True)
    for mark in ("|", "&&", ">", ";", "&"):
        words = words[: words.index(mark)] if mark in words else words
    if words[0] == "torch-holdout":
        return _command_problem(words[1:])
    if words[0] == "make":
        unknown = {word for word in words[1:] if "=" not in word} - _targets()
        return f"no target {sorted(unknown)}" if unknown else None
    return _script_problem(words[1:])


def _script_problem(words: list[str]) -> str | None:
    script = next((word for word in words if word.endswith(".py")), None)
    if script is None or not script.startswith(("examples/", "benchmarks/", "docs/", "tests/")):
        return None  # the reader's own
    return None if (ROOT / script).is_file() else f"no file {script}"


def _command_problem(words: list[str]) -> str | None:
    """Let the command's own parser read the arguments, without running anything."""
    import typer
    from torch_holdout.cli import app

    group = typer.main.get_command(app)
    if not words or words[0].startswith("-"):
        known = {option for each in group.params for option in each.opts} | {"--help"}
        return None if set(words) <= known else f"no option {words}"
    while words and words[0] in getattr(group, "commands", {}):
        group, (name, *words) = group.commands[words[0]], words
    if hasattr(group, "commands"):
        return f"no command {' '.join(words)}"
    try:
        group.make_context(name, words)
    except typer.Exit:  # --help
        return None
    except Exception as error:
        if not hasattr(error, "format_message"):  # typer brings a parser of its own
            raise
        return error.format_message()
    return None
