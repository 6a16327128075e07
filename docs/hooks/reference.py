"""Write the reference while the site is built: a page for each public module, from its `__all__`.

Nothing here names a class or a function: a name that is added to an `__all__` has its entry, under
its public path, in the next build. What a name says is its docstring.
"""

import importlib
import inspect
import pkgutil
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
# Every public module, in reading order. A name that several export is described at the first.
PUBLIC = (
    "torch_holdout",
    "torch_holdout.lightning",
    "torch_holdout.pytorch_lightning",
    "torch_holdout.transformers",
    "torch_holdout.mechanisms",
    "torch_holdout.bounds",
    "torch_holdout.bounds.published",
    "torch_holdout.accounting",
    "torch_holdout.ledger",
    "torch_holdout.report",
    "torch_holdout.tuning",
    "torch_holdout.tuning.optuna",
    "torch_holdout.tuning.ray",
    "torch_holdout.prediction",
    "torch_holdout.prediction.mechanisms",
    "torch_holdout.prediction.lightning",
    "torch_holdout.prediction.pytorch_lightning",
    "torch_holdout.service.client",
    "torch_holdout.audit",
)
# Sections of the first page, by where a name is defined; other pages may have one for each file.
SECTIONS = {
    "The door": ("holdout", "training"),
    "Boards": ("service",),
    "Statistics": ("statistics", "_fingerprints"),
    "Mechanisms": ("mechanisms",),
    "Planning": ("planning",),
    "Certificates": ("bounds",),
    "Errors and warnings": ("errors",),
}
COPIED = {"changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md"}


@dataclass(frozen=True)
class Name:
    """A public name: where it is exported, and what it is."""

    module: str
    name: str

    @property
    def path(self) -> str:
        """The path users write; also the anchor of its entry."""
        return f"{self.module}.{self.name}"

    @property
    def value(self) -> Any:
        """What it stands for."""
        return getattr(importlib.import_module(self.module), self.name)

    @property
    def home(self) -> str:
        """The module that defines it; a constant or an alias of a type has none of its own."""
        home = str(getattr(self.value, "__module__", self.module))
        return home if home.startswith("torch_holdout") else self.module

    @property
    def source(self) -> str:
        """The path to read its docstring from, where a submodule has the same name."""
        return f"{self.home}.{self.name}" if self.path in _submodules(self.module) else self.path


@lru_cache
def _submodules(module: str) -> frozenset[str]:
    package = importlib.import_module(module)
    found = pkgutil.iter_modules(getattr(package, "__path__", ()))
    return frozenset(f"{module}.{each.name}" for each in found)


@lru_cache
def public_names() -> tuple[Name, ...]:
    """Every name of every public module."""
    return tuple(
        Name(module, name)
        for module in PUBLIC
        for name in sorted(importlib.import_module(module).__all__)
    )


def page_of(module: str) -> str:
    """Where a module's page is."""
    return f"reference/{module}.md"


def on_config(config: MkDocsConfig) -> None:
    """Fill the reference's place in the navigation."""
    pages: list[Any] = ["reference/index.md"]
    pages += [{module.removeprefix("torch_holdout."): page_of(module)} for module in PUBLIC]
    pages.append({"Command line": "reference/cli.md"})
    for item in config.nav or ():
        if isinstance(item, dict) and "Reference" in item:
            item["Reference"] = pages


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the pages that no one writes."""
    written = {page_of(module): module_page(module) for module in PUBLIC}
    written |= {"reference/index.md": index_page(), "reference/cli.md": command_page()}
    for page, source in COPIED.items():  # as it is linked from the repository's folder
        written[page] = (ROOT / source).read_text().replace("](docs/", "](")
    for path, content in written.items():
        files.append(File.generated(config, path, content=content))


def index_page() -> str:
    """One line for each module."""
    lines = ["# Reference", "", "Every public name, each with an example that is run.", ""]
    lines += ["| module | |", "|---|---|"]
    for module in PUBLIC:
        lines.append(f"| [`{module}`]({module}.md) | {_first_line(module)} |")
    lines.append("| [`torch-holdout`](cli.md) | The command line. |")
    return "\n".join(lines) + "\n"


def module_page(module: str) -> str:
    """A heading for each section, an entry for each name."""
    lines = [f"# {module}", "", *_introduction(module), ""]
    names = [each for each in public_names() if each.module == module]
    sections: dict[str, list[Name]] = {}
    for name in sorted(names, key=_place):
        sections.setdefault(_section(name), []).append(name)
    by_file = not any(_at_the_door(name) for name in names)
    for title, members in sections.items():
        if by_file and 2 * len(sections) <= len(names):  # else they would say the names twice
            lines += [f"## {title}", ""]
        for name in members:
            lines += [*_entry(name), ""]
    return "\n".join(lines)


def _introduction(module: str) -> list[str]:
    """The module's docstring; its example becomes code."""
    text = inspect.getdoc(importlib.import_module(module)) or ""
    words, found, example = text.partition("\nExample:\n")
    return [words, "", "```pycon", inspect.cleandoc(example), "```"] if found else [words]


def _section(name: Name) -> str:
    if name.module == "torch_holdout":
        fitting = (title for title, homes in SECTIONS.items() if _layer(name) in homes)
        return next(fitting, "Others")
    return name.home.rpartition(".")[2].lstrip("_").replace("_", " ").capitalize()


def _at_the_door(name: Name) -> bool:
    """Whether a class says it is defined in the package itself, so that its file is not known."""
    in_package = bool(_submodules(name.module)) and name.home == name.module
    return in_package and isinstance(name.value, type)


def _layer(name: Name) -> str:
    return name.home.partition(".")[2].partition(".")[0]


def _place(name: Name) -> tuple[int, str]:
    """The first page is in the order of `SECTIONS`, the others in that of their files."""
    if name.module != "torch_holdout":
        return (0, name.home)
    homes = [home for section in SECTIONS.values() for home in section]
    return (homes.index(_layer(name)) if _layer(name) in homes else len(homes), "")


def _entry(name: Name) -> list[str]:
    first, bound = first_of(name), _first_bound(name)
    if first != name or bound != name:
        same = f"The same as [`{bound.path}`][{bound.path}]"
        also = ", for another Lightning package" if first == name else ""
        return [f"### {name.name} {{ #{name.path} }}", "", f"{same}{also}."]
    lines = [f"::: {name.source}"]
    if name.source != name.path:
        lines = [f"[](){{ #{name.path} }}", "", *lines]
    for base in _own_bases(name.value):
        if base.__init__.__doc__ == name.value.__doc__:
            shown = ", ".join(["__init__", *_members(name.value, base)])
            lines += ["    options:", f"      inherited_members: [{shown}]"]
        else:
            lines += ["", f"::: {base.__module__}.{base.__qualname__}"]
    return lines


def first_of(name: Name) -> Name:
    """The first public name of the same object."""
    return next(
        each for each in public_names() if each.name == name.name and each.value is name.value
    )


def _own_bases(value: Any) -> list[type]:
    """Bases without a public name that say what a class's arguments are."""
    if not isinstance(value, type) or "__init__" in vars(value):
        return []
    listed = [each.value for each in public_names()]
    own = [base for base in value.__bases__ if base.__module__.startswith("torch_holdout")]
    return [base for base in own if base not in listed]


def _members(value: type, own: type) -> list[str]:
    """Public members that users call; what Lightning calls is left out."""
    others = [base for base in value.__bases__ if base is not own]
    public = [name for name in vars(own) if not name.startswith("_")]
    return [name for name in public if not any(name in dir(base) for base in others)]


def _first_bound(name: Name) -> Name:
    """The first public name of this object, or of its like for another Lightning package."""
    own = _own_bases(name.value)
    alike = (each for each in public_names() if each.name == name.name)
    return next(each for each in alike if own == _own_bases(each.value)) if own else first_of(name)


def _first_line(module: str) -> str:
    text = inspect.getdoc(importlib.import_module(module)) or ""
    return " ".join(text.split("\n\n")[0].split())


def command_page() -> str:
    """Every command with its arguments and options, as the program itself says them."""
    from torch_holdout.cli import app
    from typer.main import get_command

    group = get_command(app)
    lines = ["# Command line", "", str(group.help), ""]
    lines += [
        "Alone it says which ledgers are in this folder, what is left in them, and what to do"
    ]
    lines += ["next. `--install-completion` sets up the Tab key, which completes ledgers too.", ""]
    lines += [str(group.epilog), ""]
    for name, command in _commands(group):
        lines += [f"## torch-holdout {name}", "", *_paragraphs(command.help or ""), ""]
        lines += ["| option | what it is | default |", "|---|---|---|"]
        lines += [_parameter(each) for each in command.params]
        lines.append("")
    return "\n".join(lines)


def _commands(group: Any) -> list[tuple[str, Any]]:
    """Every command with its name; one of a group is called as it is typed."""
    found = []
    for name, command in group.commands.items():
        parts = getattr(command, "commands", {"": command})
        found += [(f"{name} {own}".strip(), part) for own, part in parts.items()]
    return found


def _paragraphs(text: str) -> list[str]:
    """Commands of the help text become code."""
    lines = []
    for line in inspect.cleandoc(text).splitlines():
        before, found, command = line.partition("torch-holdout ")
        lines += [before, "", "```console", f"$ {found}{command}", "```"] if found else [line]
    return lines


def _parameter(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        shown = parameter.name.upper()
    else:
        shown = "`, `".join([*parameter.opts, *parameter.secondary_opts])
    default = parameter.default() if callable(parameter.default) else parameter.default
    default = default.value if isinstance(default, Enum) else default
    given = "" if default is None or default is False else f"`{default}`"
    given = "required" if parameter.required else given
    return f"| `{shown}` | {parameter.help or ''} | {given} |"
