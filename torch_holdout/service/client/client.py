"""``th.remote``: a board in another process, asked over HTTP."""

import json
import os
import re
from collections.abc import Iterable
from typing import Any, final

from torch_holdout._shared.checks import require_between, require_flag
from torch_holdout.errors import BoardRefusedError, HoldoutError, InvalidArgumentError
from torch_holdout.service.client.addresses import BoardAddress, board_address
from torch_holdout.service.client.answers import (
    BoardStatus,
    RemoteAnswer,
    answer_from,
    status_from,
)
from torch_holdout.service.client.holdout import RemoteHoldout
from torch_holdout.service.client.memory import BoardMemory, Seen
from torch_holdout.service.client.transport import HOW_TO_SIGN, Reply, Token, Transport
from torch_holdout.service.client.uploads import Upload, upload_of

TOKEN_VARIABLE = "TORCH_HOLDOUT_TOKEN"  # noqa: S105  the variable's name
_LONGEST_WAIT = 86_400.0


def remote(url: str, token: str | None = None, *, wait: float = 300.0) -> "RemoteBoard":
    """Return a board in another process, by its address; nothing is sent before it is used.

    Predictions go out, certified answers come back; the owner of the board has the labels.

    Args:
        url: The board's page, e.g. ``https://host/boards/digits-2026``; without TLS only one on
            this machine. Redirects are not followed.
        token: The team's token; None: the environment variable ``TORCH_HOLDOUT_TOKEN``. It is never
            shown and never pickled.
        wait: For how many seconds a request is repeated while the board does not answer. Repeating
            is safe: the same predictions are answered, and charged, once.

    Example:
        >>> board = remote("https://host/boards/digits-2026")
        >>> board
        RemoteBoard('https://host/boards/digits-2026')
        >>> remote("https://team:secret@host/boards/digits-2026")
        Traceback (most recent call last):
            ...
        torch_holdout.errors.InvalidArgumentError: Expected an address without a user or a
        password, which end up in logs. ...
    """
    require_between("wait", wait, 0, _LONGEST_WAIT)
    return RemoteBoard(board_address(url), None if token is None else _token(token), float(wait))


@final
class RemoteBoard:
    """A board in another process; ``th.remote(url)`` makes one.

    Example:
        >>> import torch_holdout as th
        >>> board = th.remote("https://host/boards/digits-2026")  # a RemoteBoard
        >>> board.url, board.name
        ('https://host/boards/digits-2026', 'digits-2026')
    """

    def __init__(self, address: BoardAddress, token: Token | None, wait: float) -> None:
        self._address = address
        self._token = token
        self._wait = wait
        self._memory = BoardMemory(address.page)
        self._facts: BoardStatus | None = None

    @property
    def url(self) -> str:
        """The address of the board's page."""
        return self._address.page

    @property
    def name(self) -> str:
        """What the board is called in addresses."""
        return self._address.name

    def submit(self, predictions: Any, *, final: bool = False) -> RemoteAnswer:
        """Submit predictions, and return the answer; the same again is a repeat, and free.

        The board is asked first whether it knows them, so that a repeat sends a hash and no
        predictions.

        Args:
            predictions: Classes, probabilities or scores for all rows, as the board takes them: an
                array, a tensor, a list, or the path of an ``.npy`` or ``.csv`` file.
            final: Whether they are one of the team's finalists, which the vault is asked about when
                the board is closed.

        Raises:
            BudgetExhaustedError: Nothing is left to the team.
            HoldoutClosedError: The board takes nothing any more.
            BoardRefusedError: The token or the layout is refused.
            BoardUnreachableError: The board did not answer; repeating is safe.
        """
        require_flag("final", final)
        return self._send(upload_of(predictions, self._known()), final=final)

    def finalists(self, submissions: Iterable[str]) -> list[str]:
        """Name the team's finalists by their addresses, in place of those named before."""
        usable = isinstance(submissions, Iterable) and not isinstance(submissions, str)
        named = list(submissions) if usable else [None]
        if not all(isinstance(sha, str) for sha in named):
            raise InvalidArgumentError(
                "Expected the addresses of submissions, e.g. board.finalists([answer.submission])."
            )
        body = json.dumps({"submissions": named}).encode()
        url = f"{self._address.api}/finalists"
        reply = self._signed().send("PUT", url, body=body, media_type="application/json")
        kept = reply.content.get("finalists") if isinstance(reply.content, dict) else None
        if not isinstance(kept, list):
            raise HoldoutError("Expected the finalists from the board, but got something else.")
        return [str(sha) for sha in kept]

    def status(self) -> BoardStatus:
        """Return the board's public facts, and with a team's token what it may still ask."""
        transport = self._transport()
        content = self._head(transport, self._address.api)
        own = None
        if self._has_token():
            own = transport.send("GET", f"{self._address.root}/v1/me").content
        self._facts = status_from(content, own)
        return self._facts

    def leaderboard(self) -> dict[str, Any]:
        """Return the leaderboard, as the JSON object that the board's page is made from."""
        content = self._head(self._transport(), f"{self._address.api}/leaderboard")
        if not isinstance(content, dict):
            raise HoldoutError("Expected a leaderboard from the board, but got something else.")
        return content

    def holdout(self) -> RemoteHoldout:
        """Return the board for ``HoldoutGuard`` and ``ReusableHoldoutMetric``."""
        return RemoteHoldout(self)

    def __repr__(self) -> str:
        return f"RemoteBoard({self.url!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        # Without the token: pickles are sent, kept and shared. The copy reads the environment.
        return _again, (self.url, self._wait)

    def _send(self, upload: Upload, *, final: bool = False) -> RemoteAnswer:
        """Ask for the answer to an upload; send it if the board does not know it."""
        before, transport = self._memory.last(), self._signed()
        url = f"{self._address.api}/submissions/{upload.sha}"
        if not final:
            known = transport.send("GET", url, accept=(200, 404))
            if known.status == 200:
                return self._answer(known, upload)
        reply = transport.send(
            "PUT",
            f"{url}?final=true" if final else url,
            body=upload.body,
            media_type=upload.media_type,
            accept=(200, 201),
        )
        answer = self._answer(reply, upload)
        if reply.status == 201:
            self._memory.answered(before, Seen(answer.position, -1, answer.chain))
        return answer

    def _answer(self, reply: Reply, upload: Upload) -> RemoteAnswer:
        answer = answer_from(reply.content, self._known().first)
        if answer.submission != upload.sha:
            raise HoldoutError(
                "Expected the answer to these predictions, but the board sent that to others. "
                "Nothing else was asked."
            )
        return answer

    def _known(self) -> BoardStatus:
        """Return the facts that never change, as they were read first."""
        if self._facts is None:
            self._facts = status_from(self._head(self._transport(), self._address.api))
        return self._facts

    def _head(self, transport: Transport, url: str) -> Any:
        """Read what shows the head of the board's ledger, and compare it with what was known."""
        before = self._memory.last()
        content = transport.send("GET", url).content
        if isinstance(content, dict) and isinstance(content.get("position"), int):
            events = content.get("events")
            counted = events if isinstance(events, int) else -1
            self._memory.head(before, Seen(content["position"], counted, str(content.get("chain"))))
        return content

    def _signed(self) -> Transport:
        if not self._has_token():
            raise BoardRefusedError(
                f"Expected a team's token for {self.url}, but there is none. {HOW_TO_SIGN}",
                "unauthorised",
            )
        return self._transport()

    def _has_token(self) -> bool:
        return self._token is not None or bool(os.environ.get(TOKEN_VARIABLE))

    def _transport(self) -> Transport:
        token, named = self._token, os.environ.get(TOKEN_VARIABLE)
        if token is None and named:
            token = _token(named)
        return Transport(self._address, token, self._wait)


def _token(text: object) -> Token:
    if not isinstance(text, str) or not re.fullmatch(r"[!-~]{1,200}", text.strip(), re.ASCII):
        raise InvalidArgumentError(
            "Expected a token as the host has handed it out, th_..., but got something else."
        )
    return Token(text.strip())


def _again(url: str, wait: float) -> RemoteBoard:
    return remote(url, wait=wait)
