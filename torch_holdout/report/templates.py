"""Templates of pages: everything is escaped, and a name that is missing is an error."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment


def environment(package: str) -> "Environment":
    """Return an environment for the templates next to a package's code.

    Example:
        >>> environment("torch_holdout.report").from_string("{{ name }}").render(name="<b>")
        '&lt;b&gt;'
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader(package, ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
