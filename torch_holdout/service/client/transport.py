"""Requests to a board: repeated while it does not answer, never redirected, the token unseen."""

import json
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

from torch_holdout._shared.tracebacks import without_frames
from torch_holdout.errors import (
    BoardRefusedError,
    BoardUnreachableError,
    BudgetExhaustedError,
    HoldoutClosedError,
    HoldoutError,
)
from torch_holdout.service.client.addresses import BoardAddress

if TYPE_CHECKING:
    import httpx
    from tenacity import RetryCallState

_PASSING = (429, 502, 503, 504)  # statuses that another time may not have
_SECONDS = {"connect": 10.0, "read": 60.0, "write": 60.0, "pool": 10.0}
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 15.0  # seconds between attempts; each is twice the last
_LONGEST_DETAIL = 500  # characters of a server's own words
_URN = "urn:torch-holdout:"
_log = logging.getLogger("torch_holdout")


@final
class Token:
    """A token, which is never shown, quoted in an error or pickled."""

    __slots__ = ("_secret",)

    def __init__(self, secret: str) -> None:
        self._secret = secret

    def sign(self, request: "httpx.Request") -> "httpx.Request":
        """Put the token on a request."""
        request.headers["Authorization"] = f"Bearer {self._secret}"
        return request

    def __repr__(self) -> str:
        return "<token>"

    def __reduce__(self) -> Any:
        raise HoldoutError("Expected a token to stay in its process; it cannot be pickled.")


@final
@dataclass(frozen=True)
class Reply:
    """What a board sent: a status, and JSON."""

    status: int
    content: Any = field(repr=False)

    @property
    def problem(self) -> str:
        """The kind of problem, without what all kinds begin with; empty if it names none."""
        kind = self.content.get("type") if isinstance(self.content, dict) else None
        return kind.removeprefix(_URN) if isinstance(kind, str) and kind.startswith(_URN) else ""


class _PassingError(Exception):
    """A request that may be answered another time; ``pause`` is how long the board asks for."""

    def __init__(self, reason: str, pause: float = 0.0) -> None:
        super().__init__(reason)
        self.pause = pause


@final
class Transport:
    """Sends requests to one board.

    Args:
        address: Where the board is.
        token: What is sent with every request; None for none.
        wait: For how many seconds a request is repeated while the board does not answer.
    """

    def __init__(self, address: BoardAddress, token: Token | None, wait: float) -> None:
        self._address = address
        self._token = token
        self._wait = wait

    @without_frames  # which hold the token
    def send(
        self,
        method: str,
        url: str,
        *,
        body: bytes | None = None,
        media_type: str = "",
        accept: tuple[int, ...] = (200,),
    ) -> Reply:
        """Return a board's reply; raise unless its status is one of those accepted.

        Every request of this client can be repeated: the same again is answered once.
        """
        tenacity = _required("tenacity")
        attempts = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(_PassingError),
            stop=tenacity.stop_before_delay(self._wait) | (lambda _: self._wait <= 0),
            wait=_pause,
            before_sleep=self._say,
            reraise=True,
        )
        reason = ""
        try:
            reply: Reply = attempts(self._attempt, method, url, body, media_type, accept)
        except _PassingError as error:
            reason = str(error)
        if reason:
            raise BoardUnreachableError(
                f"Expected an answer of {self._address.page}, but {reason}. The same request can "
                f"be repeated at any time: it is answered, and charged, once."
            )
        if reply.status not in accept:
            raise self._refusal(reply)
        return reply

    def _attempt(
        self, method: str, url: str, body: bytes | None, media_type: str, accept: tuple[int, ...]
    ) -> Reply:
        httpx = _required("httpx")
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        if body is not None:
            headers["Content-Type"] = media_type
        try:
            with httpx.Client(
                timeout=httpx.Timeout(**_SECONDS),
                follow_redirects=False,
                trust_env=not self._address.is_here,  # no proxy stands before this machine
            ) as client:
                response = client.request(
                    method,
                    url,
                    content=body,
                    headers=headers,
                    auth=None if self._token is None else self._token.sign,
                )
        except httpx.HTTPError as error:
            raise self._broken(error) from None
        status = int(response.status_code)
        if status in _PASSING and status not in accept:
            raise _PassingError(f"it says {status}", _seconds(response.headers.get("Retry-After")))
        return Reply(status, _json(response.content))

    def _broken(self, error: Exception) -> Exception:
        reason: BaseException | None = error
        while reason is not None:
            if isinstance(reason, ssl.SSLCertVerificationError):
                return BoardUnreachableError(
                    f"Expected a certificate for {self._address.page} that this machine trusts, "
                    f"but {reason.verify_message}. Nothing was sent. A certificate of one's own is "
                    f"named by SSL_CERT_FILE."
                )
            reason = reason.__cause__ or reason.__context__
        return _PassingError(f"it cannot be reached ({type(error).__name__}: {plain(str(error))})")

    def _say(self, state: "RetryCallState") -> None:
        if state.attempt_number == 1 and state.outcome is not None:
            _log.warning(
                "%s: %s. The request is repeated for up to %g s.",
                self._address.page,
                state.outcome.exception(),
                self._wait,
            )

    def _refusal(self, reply: Reply) -> HoldoutError:
        page, status, kind = self._address.page, reply.status, reply.problem
        content = reply.content if isinstance(reply.content, dict) else {}
        words = plain(f"{content.get('title') or 'refused'}. {content.get('detail') or ''}").strip()
        if 300 <= status < 400:
            return BoardRefusedError(
                f"Expected the board itself at {page}, but it sends this client elsewhere "
                f"({status}), where a token does not go. Give the address that it has now.",
                "redirect",
            )
        if status == 409 and kind.startswith("exhausted"):
            return BudgetExhaustedError(f"{page}: {words}")
        if status == 409 and kind == "closed":
            return HoldoutClosedError(f"{page}: {words}")
        if status >= 500:
            return BoardUnreachableError(
                f"Expected an answer of {page}, but it failed ({status}): {words} The same request "
                f"can be repeated: it is answered, and charged, once."
            )
        if not kind:
            return BoardRefusedError(
                f"Expected an answer of a board at {page}, but something else answers there "
                f"({status}). Is the address that of a board's page?"
            )
        if status == 401:
            words += " " + HOW_TO_SIGN
        return BoardRefusedError(f"{page} refused ({status}): {words}", kind)


HOW_TO_SIGN = (
    "A team's token goes into the environment variable TORCH_HOLDOUT_TOKEN, or "
    "th.remote(url, token=...)."
)


def plain(text: str) -> str:
    r"""Return a server's words as one line that a terminal can show.

    Example:
        >>> plain("Expected\n\x1b[31mclasses")
        'Expected  [31mclasses'
    """
    shown = "".join(each if each.isprintable() else " " for each in text)
    return shown if len(shown) <= _LONGEST_DETAIL else f"{shown[:_LONGEST_DETAIL]}..."


def _pause(state: "RetryCallState") -> float:
    error = None if state.outcome is None else state.outcome.exception()
    asked = error.pause if isinstance(error, _PassingError) else 0.0
    doubled = _FIRST_PAUSE * 2.0 ** min(state.attempt_number - 1, 10)
    return max(asked, min(doubled, _LONGEST_PAUSE))


def _seconds(text: str | None) -> float:
    """Return what ``Retry-After`` asks for; 0 for a date, or anything else."""
    short = text is not None and text.isascii() and text.isdigit() and len(text) < 6
    return float(text or 0) if short else 0.0


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _required(name: str) -> Any:
    """Return a package of the extra, which is imported when it is first needed."""
    load: dict[str, Callable[[], Any]] = {"httpx": _httpx, "tenacity": _tenacity}
    try:
        return load[name]()
    except ImportError:
        raise HoldoutError(
            f"Boards in another process need {name}, which is not installed. Run pip install "
            f"'torch-holdout[remote]'."
        ) from None


def _httpx() -> Any:
    import httpx

    return httpx


def _tenacity() -> Any:
    import tenacity

    return tenacity
