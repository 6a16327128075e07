"""Let `Example:` be what `Examples:` is to the reader of docstrings: code, not a quotation."""

import re
from typing import Any

import griffe


class Examples(griffe.Extension):
    """Rename the section before it is read."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Change one docstring."""
        if obj.docstring:
            obj.docstring.value = plural(obj.docstring.value)


def plural(docstring: str) -> str:
    r"""Return a docstring whose examples are found.

    Example:
        >>> plural("Add.\n\nExample:\n    >>> 1 + 1\n    2")
        'Add.\n\nExamples:\n    >>> 1 + 1\n    2'
    """
    return re.sub(r"^(\s*)Example:$", r"\1Examples:", docstring, flags=re.MULTILINE)
