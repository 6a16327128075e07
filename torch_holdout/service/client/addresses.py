"""Addresses of boards: https, or this machine; without passwords."""

import re
from dataclasses import dataclass
from ipaddress import ip_address
from typing import final
from urllib.parse import urlsplit

from torch_holdout._shared.checks import shown
from torch_holdout.errors import InvalidArgumentError

_PATH = re.compile(r"(?P<prefix>(?:/[\w.~-]+)*?)(?:/v1)?/boards/(?P<name>[a-z0-9-]{1,60})/?", re.A)
_EXAMPLE = "https://host/boards/digits-2026"


@final
@dataclass(frozen=True)
class BoardAddress:
    """Where a board is.

    Attributes:
        root: The server, with the prefix that a proxy adds, if any.
        name: The board's name there.
    """

    root: str
    name: str

    @property
    def page(self) -> str:
        """The address of the board's page, which people are given."""
        return f"{self.root}/boards/{self.name}"

    @property
    def api(self) -> str:
        """The address that requests about the board begin with."""
        return f"{self.root}/v1/boards/{self.name}"

    @property
    def is_here(self) -> bool:
        """Whether it is on this machine."""
        return _is_loopback(urlsplit(self.root).hostname or "")


def board_address(url: object) -> BoardAddress:
    """Read the address of a board; raise unless it is https, or http on this machine.

    Example:
        >>> board_address("https://host/boards/digits-2026").api
        'https://host/v1/boards/digits-2026'
        >>> board_address("http://host/boards/digits-2026")
        Traceback (most recent call last):
            ...
        torch_holdout.errors.InvalidArgumentError: Expected an https address, because the token
        would be readable on its way, but got an http one. ...
    """
    if not isinstance(url, str):
        raise InvalidArgumentError(
            f"Expected the address of a board, such as {_EXAMPLE}, but got {type(url).__name__}."
        )
    try:
        parts = urlsplit(url.strip())
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise _other(url) from None
    if parts.username is not None or parts.password is not None:
        raise InvalidArgumentError(
            "Expected an address without a user or a password, which end up in logs. Leave them "
            "out, and put the token into TORCH_HOLDOUT_TOKEN."
        )
    found = _PATH.fullmatch(parts.path)
    usable = parts.scheme in ("http", "https") and host and re.fullmatch(r"[\w.:-]+", host, re.A)
    if found is None or not usable or parts.query or parts.fragment:
        raise _other(url)
    if parts.scheme == "http" and not _is_loopback(host):
        raise InvalidArgumentError(
            "Expected an https address, because the token would be readable on its way, but got an "
            "http one. Without TLS only a board on this machine is asked, e.g. "
            "http://127.0.0.1:8700/boards/digits-2026."
        )
    place = f"[{host}]" if ":" in host else host
    root = f"{parts.scheme}://{place}{'' if port is None else f':{port}'}{found['prefix']}"
    return BoardAddress(root, found["name"])


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _other(url: str) -> InvalidArgumentError:
    # What stands before an @ may be a password.
    text = shown(url) if "@" not in url else "another"
    return InvalidArgumentError(
        f"Expected the address of a board, such as {_EXAMPLE}, but got {text}."
    )
