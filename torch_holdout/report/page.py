"""The page: one file, no script, nothing loaded from anywhere."""

import math
import os
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch_holdout._shared.checks import require_instance
from torch_holdout._shared.text import counted
from torch_holdout.errors import HoldoutError
from torch_holdout.report import curves, figures, verdict, wording
from torch_holdout.report.summary import Report
from torch_holdout.report.templates import environment

if TYPE_CHECKING:
    from jinja2 import Template

# How an SQLite file begins, and its log (-wal) in either byte order.
_DATABASES = (b"SQLite format 3\0", bytes.fromhex("377f0682"), bytes.fromhex("377f0683"))
_COMPANIONS = ("-wal", "-shm", "-journal")


def page(report: Report) -> str:
    """Return the report as HTML.

    Example:
        >>> from torch_holdout.ledger import Ledger
        >>> from torch_holdout.report.summary import summarise
        >>> "The ledger has no account yet" in page(summarise(Ledger("memory://")))
        True
    """
    require_instance("report", report, Report)
    return _template().render(report=report).lstrip() + "\n"


def write(report: Report, path: str | PathLike[str]) -> Path:
    """Write the page to a file, whole or not at all; return where it is.

    Example:
        >>> import tempfile
        >>> from torch_holdout.ledger import Ledger
        >>> from torch_holdout.report.summary import summarise
        >>> write(summarise(Ledger("memory://")), Path(tempfile.mkdtemp())).name
        'report.html'
    """
    require_instance("path", path, str | PathLike)
    content, path = page(report), Path(path)
    try:
        path = path / "report.html" if path.is_dir() else path
        place = path.resolve()  # a link stays, and what it points to is replaced
        _refuse_other(place)
        place.parent.mkdir(parents=True, exist_ok=True)
        unfinished = place.with_name(f".{place.name}.{os.getpid()}.tmp")
        try:
            unfinished.write_text(content, encoding="utf-8")
            unfinished.replace(place)
        finally:
            unfinished.unlink(missing_ok=True)
    except (OSError, RuntimeError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise HoldoutError(
            f"Expected a place for the page that can be written, but {path} cannot: {why}."
        ) from None
    return path


def _refuse_other(path: Path) -> None:
    """Raise for a device or a pipe, a ledger, or a file that belongs to one: none is replaced."""
    if path.exists() and not path.is_file():
        raise HoldoutError(
            f"Expected a file for the page, but {path} is a device, a pipe or something else. "
            f"Nothing was written. Choose another place with --output."
        )
    belongs = [path.name.removesuffix(end) for end in _COMPANIONS if path.name.endswith(end)]
    taken = any(path.with_name(name).exists() for name in belongs)
    if not taken and path.is_file():
        with path.open("rb") as file:
            taken = file.read(16).startswith(_DATABASES)
    if taken:
        raise HoldoutError(
            f"Expected a place for the page, but {path} is a ledger or another database, or "
            f"belongs to one. Nothing was written. Choose another file with --output."
        )


@lru_cache(maxsize=1)
def _template() -> "Template":
    from markupsafe import Markup

    made = environment("torch_holdout.report")

    def drawn(make: Any) -> Any:
        """Mark a figure as escaped: it escapes the names in it itself."""
        return lambda *given, **options: Markup(make(*given, **options))  # noqa: S704

    made.globals |= {
        name: drawn(getattr(figures, name))
        for name in (
            *("budget_bar", "share_bar", "values_chart", "run_trail", "run_interval"),
            *("charges_chart", "legend_mark"),
        )
    }
    made.globals |= {
        name: drawn(getattr(curves, name))
        for name in ("curves_chart", "curve_trail", "curve_interval")
    }
    made.globals |= {"curves_drawn": curves.CURVES_DRAWN}
    made.globals |= {"verdict": verdict, "wording": wording, "counted": counted}
    made.globals |= {"infinite": math.isinf, "stale_drawn": figures.STALE_DRAWN}
    return made.get_template("page.html.j2")
