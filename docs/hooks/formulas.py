r"""Show :math:`...` and .. math:: as MathML, which browsers draw themselves: no script, no fetch.

Only what the docstrings and pages use of LaTeX is known; anything else stops the build.
"""
# ruff: noqa: RUF001  Greek letters and signs are what this is about

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any
from xml.etree.ElementTree import Element

from markdown import Extension, Markdown
from markdown.blockprocessors import BlockProcessor
from markdown.inlinepatterns import InlineProcessor
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError

FORMULA = r":math:`([^`]+)`"
DISPLAYED = re.compile(r"\.\. math::\s*(.+)", re.DOTALL)  # on lines of its own, up to an empty one
PIECE = re.compile(r"\\[a-zA-Z]+|\\.|\d+(?:[.,]\d+)*|\S")
LETTERS = {
    **{"alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "varepsilon": "ε", "eta": "η"},
    **{
        "kappa": "κ",
        "lambda": "λ",
        "mu": "μ",
        "pi": "π",
        "rho": "ρ",
        "sigma": "σ",
        "tau": "τ",
        "psi": "ψ",
    },
    **{"Delta": "Δ", "Gamma": "Γ", "Phi": "Φ", "ell": "ℓ", "theta": "θ", "phi": "φ", "infty": "∞"},
}
SIGNS = {
    **{"le": "≤", "ge": "≥", "ne": "≠", "propto": "∝", "pm": "±", "in": "∈", "mid": "|"},
    **{"mapsto": "↦", "sum": "∑", "prod": "∏", "lfloor": "⌊", "rfloor": "⌋", "lceil": "⌈"},
    **{"rceil": "⌉", "cdot": "·", "times": "×", "approx": "≈", "to": "→", "|": "‖", "{": "{"},
    **{"}": "}", "bmod": "mod", "dots": "…", "ldots": "…", "exists": "∃", "nabla": "∇"},
}
SIGN_TAGS, CLOSING = ("mo", "mspace"), (")", "]")
BRACKETS = "()[]|"  # as high as a letter; between \\left and \\right as high as what they hold
FUNCTIONS = ("ln", "log", "exp", "max", "min", "sup", "inf", "tanh", "Pr")
SPACES = {",": "0.17em", ";": "0.28em", " ": "0.33em", "quad": "1em", "qquad": "2em"}


def on_config(config: MkDocsConfig) -> None:
    """Let every page and docstring have formulas."""
    config.markdown_extensions.append(Formulas())  # type: ignore[arg-type]


class Formulas(Extension):
    """The Markdown extension."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802
        """Read formulas before code, whose mark they share."""
        md.inlinePatterns.register(_Formula(FORMULA, md), "formula", 195)
        md.parser.blockprocessors.register(_Displayed(md.parser), "displayed formula", 95)


class _Formula(InlineProcessor):
    def handleMatch(self, m: re.Match[str], data: str) -> Any:  # noqa: N802
        shown = Element("span", {"class": "formula"})  # scrolls where it is too long for a line
        shown.append(mathml(m.group(1)))
        return shown, m.start(0), m.end(0)


class _Displayed(BlockProcessor):
    def test(self, parent: Element, block: str) -> bool:
        return DISPLAYED.fullmatch(block) is not None

    def run(self, parent: Element, blocks: list[str]) -> None:
        shown = Element("div", {"class": "formula"})
        shown.append(mathml(DISPLAYED.sub(r"\1", blocks.pop(0))))
        shown[0].set("display", "block")
        parent.append(shown)


def mathml(latex: str) -> Element:
    r"""Return a formula as an element.

    Example:
        >>> from xml.etree.ElementTree import tostring
        >>> tostring(mathml(r"x^2"), encoding="unicode")
        '<math><msup><mi>x</mi><mn>2</mn></msup></math>'
    """
    root = Element("math")
    pieces = iter(PIECE.findall(latex))
    for part in _parts(pieces, latex):
        root.append(part)
    return root


def _parts(pieces: Iterator[str], whole: str) -> list[Element]:
    """Read up to the closing brace or bracket, or the end."""
    parts: list[Element] = []
    for piece in pieces:
        if piece in ("}", "\\right"):
            break
        if piece in "^_":
            _attach(parts, piece, _next(pieces, whole))
        elif piece not in ("\\bigl", "\\bigr"):
            parts.append(_read(piece, pieces, whole))
    return _spaced(parts)


def _spaced(parts: list[Element]) -> list[Element]:
    """Part the name of a function from its neighbours, but not from a sign or a bracket."""
    spaced = parts[:1]
    for before, part in pairwise(parts):
        if (_is_function(part) and (before.tag not in SIGN_TAGS or before.text in CLOSING)) or (
            _is_function(before) and _first(part).tag not in SIGN_TAGS
        ):
            spaced.append(Element("mspace", width=SPACES[","]))
        spaced.append(part)
    return spaced


def _is_function(part: Element) -> bool:
    name = part[0] if part.tag in ("msub", "msup", "msubsup") else part
    return name.tag == "mi" and name.text in FUNCTIONS


def _first(part: Element) -> Element:
    return part[0] if part.tag == "mrow" and len(part) else part


def _attach(parts: list[Element], mark: str, script: Element) -> None:
    """Hang a script on what came before; a second one joins the first."""
    base = parts.pop() if parts else Element("mrow")
    if base.tag == ("msub" if mark == "^" else "msup"):
        old = base[1]
        both = _element("msubsup", base[0], *((old, script) if mark == "^" else (script, old)))
        parts.append(both)
    else:
        parts.append(_element("msup" if mark == "^" else "msub", base, script))


def _next(pieces: Iterator[str], whole: str) -> Element:
    return _read(next(pieces, ""), pieces, whole)


def _read(piece: str, pieces: Iterator[str], whole: str) -> Element:
    if piece == "{":
        return _element("mrow", *_parts(pieces, whole))
    if not piece.startswith("\\"):
        return _plain(piece)
    name = piece[1:]
    if name in STRUCTURES:
        return STRUCTURES[name](pieces, whole)
    if name in LETTERS:
        return _text("mi", LETTERS[name])
    if name in SIGNS:
        return _text("mo", SIGNS[name])
    if name in FUNCTIONS:
        return _text("mi", name)
    if name in SPACES:
        return Element("mspace", width=SPACES[name])
    raise PluginError(f"The formula {whole!r} uses {piece}, which docs/hooks/formulas.py lacks.")


def _plain(piece: str) -> Element:
    if piece[:1].isdigit():
        return _text("mn", piece)
    sign = _text("mi" if piece.isalpha() else "mo", piece.replace("-", "−").replace("'", "′"))
    if piece in BRACKETS:
        sign.set("stretchy", "false")
    return sign


def _between(pieces: Iterator[str], whole: str) -> Element:
    """A row between brackets that are as high as it."""
    opening = _text("mo", next(pieces, ""))
    content = _parts(pieces, whole)
    return _element("mrow", opening, *content, _text("mo", next(pieces, "")))


def _upright(pieces: Iterator[str], whole: str) -> Element:
    """Words stay words."""
    content = _next(pieces, whole)
    return _text("mtext", "".join(content.itertext()))


def _binomial(pieces: Iterator[str], whole: str) -> Element:
    fraction = _element("mfrac", _next(pieces, whole), _next(pieces, whole))
    fraction.set("linethickness", "0")
    return _element("mrow", _text("mo", "("), fraction, _text("mo", ")"))


def _hat(pieces: Iterator[str], whole: str) -> Element:
    return _element("mover", _next(pieces, whole), _text("mo", "^"))


STRUCTURES = {
    "frac": lambda pieces, whole: _element("mfrac", _next(pieces, whole), _next(pieces, whole)),
    "tfrac": lambda pieces, whole: _element("mfrac", _next(pieces, whole), _next(pieces, whole)),
    "left": _between,
    "sqrt": lambda pieces, whole: _element("msqrt", _next(pieces, whole)),
    "binom": _binomial,
    "hat": _hat,
    "mathrm": _upright,
    "text": _upright,
}


def _element(tag: str, *children: Element) -> Element:
    made = Element(tag)
    made.extend(children)
    return made


def _text(tag: str, text: str) -> Element:
    made = Element(tag)
    made.text = text
    return made
