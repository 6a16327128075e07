"""The configuration of a board: ``board.toml``, checked before anything is read or written."""

import re
import sys
from datetime import timezone
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal, final

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    model_validator,
)

from torch_holdout._shared.files import why_unreadable
from torch_holdout.errors import HoldoutError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PUBLIC_FILE, VAULT_FILE = "public.labels", "vault.labels"  # what `board init` writes
_MOST_BYTES = 1_000_000  # of a board.toml


def _named(path: Path) -> Path:
    if "\0" in str(path):
        raise ValueError("no file can have that name")
    return path


_Path = Annotated[Path, Field(strict=False), AfterValidator(_named)]  # TOML has text for it
_Number = Annotated[float, Field(allow_inf_nan=False)]
_UPLOADS: dict[str, tuple[str, ...]] = {  # what each kind of statistic is computed from
    "accuracy": ("classes", "probabilities"),
    "cross_entropy": ("probabilities",),
    "mse": ("scores",),
    "f1_macro": ("classes", "probabilities"),
    "auroc": ("scores",),
}
_NEEDS: dict[str, tuple[str, ...]] = {
    "accuracy": (),
    "cross_entropy": ("high",),
    "mse": ("low", "high"),
    "f1_macro": ("blocks",),
    "auroc": ("blocks",),
}


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


@final
class BoardSection(_Section):
    """``[board]``: what it is called, and until when it answers."""

    name: str = Field(pattern=r"^[a-z0-9-]{1,60}$")
    title: str = Field(min_length=1, max_length=200)
    visibility: Literal["public", "teams"] = "public"
    closes: AwareDatetime | None = None

    @model_validator(mode="after")
    def _check(self) -> "BoardSection":
        if not self.title.isprintable():
            raise ValueError("expected a title of printable characters")
        try:
            _ = self.closes_at
        except OverflowError:
            raise ValueError("expected a time in closes that there is in UTC too") from None
        return self

    @property
    def closes_at(self) -> str | None:
        """When submissions end, in UTC as the ledger writes times; None for never."""
        if self.closes is None:
            return None
        return self.closes.astimezone(timezone.utc).isoformat(timespec="milliseconds")


@final
class DataSection(_Section):
    """``[data]``: the file that ``board init`` cuts, and the layout of an upload."""

    source: _Path = Field(alias="labels")
    ids: _Path | None = None
    classes: int | None = Field(default=None, ge=2, le=65_536)
    upload: Literal["classes", "probabilities", "scores"]
    public: _Number = Field(ge=0, le=1)

    @model_validator(mode="after")
    def _check(self) -> "DataSection":
        if self.upload != "scores" and self.classes is None:
            raise ValueError(f'upload = "{self.upload}" needs classes')
        if self.upload == "probabilities" and (self.classes or 0) > 4_096:
            raise ValueError("expected at most 4096 classes for probabilities")
        return self


@final
class StatisticSection(_Section):
    """``[statistics.NAME]``: what is computed of each row, or of each block of rows."""

    kind: Literal["accuracy", "cross_entropy", "mse", "f1_macro", "auroc"]
    low: _Number | None = None
    high: _Number | None = None
    blocks: int | None = Field(default=None, ge=2, le=1_000_000)

    @model_validator(mode="after")
    def _check(self) -> "StatisticSection":
        given = {name for name in ("low", "high", "blocks") if getattr(self, name) is not None}
        needed = set(_NEEDS[self.kind])
        if given != needed:
            expected = " and ".join(sorted(needed)) or "no parameter"
            got = ", ".join(sorted(given)) or "none"
            raise ValueError(f'kind = "{self.kind}" takes {expected}, but got {got}')
        return self


@final
class FeedbackSection(_Section):
    """``[feedback]``: what a submission is told."""

    mode: Literal["ladder", "record", "gate", "sealed"]
    baseline: _Number | None = None
    step: _Number | None = Field(default=None, gt=0)
    rule: Literal["certified", "margin"] | None = None
    margin: _Number | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _check(self) -> "FeedbackSection":
        told = self.mode in ("ladder", "record")
        for name in ("baseline", "step"):
            if (getattr(self, name) is not None) != told:
                verb = "needs" if told else "takes no"
                raise ValueError(f'mode = "{self.mode}" {verb} {name}')
        if self.mode != "gate" and (self.rule is not None or self.margin is not None):
            raise ValueError('rule and margin belong to mode = "gate"')
        if (self.rule == "margin") != (self.margin is not None):
            raise ValueError('rule = "margin" needs margin, and no other rule takes one')
        return self

    @property
    def gate_rule(self) -> Literal["certified", "margin"] | None:
        """The rule of a gate, certified unless said otherwise; None for other modes."""
        return (self.rule or "certified") if self.mode == "gate" else None


@final
class LimitsSection(_Section):
    """``[limits]``: what teams may ask, one by one and together."""

    teams: int = Field(ge=1, le=100_000)
    submissions: int = Field(ge=1, le=1_000_000)
    releases: int | None = Field(default=None, ge=1, le=1_000_000)
    budget: int | None = Field(default=None, ge=1, le=100_000_000)
    finalists: int = Field(default=2, ge=1, le=100)
    failure: _Number = Field(default=0.05, gt=0, le=0.5)
    upload_mb: int = Field(default=64, ge=1, le=1_024)

    @model_validator(mode="after")
    def _check(self) -> "LimitsSection":
        planned = self.teams * (self.releases or 0)
        if (self.releases is None) != (self.budget is None):
            raise ValueError("give releases and budget, or neither")
        if self.budget is not None and planned > self.budget:
            raise ValueError(
                f"the quotas of {self.teams} teams with {self.releases} releases are {planned} in "
                f"all, more than budget = {self.budget}"
            )
        if self.teams * self.submissions > 1_000_000_000:
            raise ValueError("expected at most 10^9 submissions in all")
        return self


@final
class StoreSection(_Section):
    """``[store]``: where answers and uploads are kept."""

    ledger: str = Field(pattern=r"^(sqlite|postgresql\+psycopg)://")
    uploads: _Path = Path("uploads")
    keep_uploads: bool = True

    @model_validator(mode="after")
    def _check(self) -> "StoreSection":
        if re.match(r"^[^/]+://[^/@]*:[^/@]*@", self.ledger):
            raise ValueError(
                "expected a URL without a password: PostgreSQL reads it from ~/.pgpass"
            )
        return self


@final
class ServerSection(_Section):
    """``[server]``: where it listens."""

    listen: str = "127.0.0.1:8700"
    behind_proxy: bool = False
    certfile: _Path | None = None
    keyfile: _Path | None = None
    workers: int = Field(default=1, ge=1, le=64)
    admin: str = "127.0.0.1:8701"
    requests_per_minute: int = Field(default=60, ge=1, le=1_000_000)

    @model_validator(mode="after")
    def _check(self) -> "ServerSection":
        if (self.certfile is None) != (self.keyfile is None):
            raise ValueError("give certfile and keyfile, or neither")
        if not is_loopback(address_of(self.admin)[0]):
            raise ValueError("expected admin on the loopback, such as 127.0.0.1:8701")
        safe = self.behind_proxy or self.certfile is not None
        if not safe and not is_loopback(address_of(self.listen)[0]):
            raise ValueError(
                "expected certfile and keyfile, or behind_proxy = true, for anything but loopback"
            )
        return self


@final
class BoardConfig(_Section):
    """The whole of ``board.toml``. Paths are relative to its folder.

    Example:
        >>> config = BoardConfig.model_validate({
        ...     "board": {"name": "digits", "title": "Digits"},
        ...     "data": {"labels": "labels.npy", "classes": 10, "upload": "classes",
        ...              "public": 0.3},
        ...     "statistics": {"accuracy": {"kind": "accuracy"}},
        ...     "feedback": {"mode": "ladder", "baseline": 0.55, "step": 0.01},
        ...     "limits": {"teams": 50, "submissions": 50, "releases": 8, "budget": 400},
        ...     "store": {"ledger": "sqlite:///board.db"}})
        >>> config.first, config.limits.failure, config.server.listen
        ('accuracy', 0.05, '127.0.0.1:8700')
    """

    board: BoardSection
    data: DataSection
    statistics: dict[str, StatisticSection] = Field(min_length=1, max_length=4)
    feedback: FeedbackSection
    limits: LimitsSection
    store: StoreSection
    server: ServerSection = Field(default_factory=ServerSection)
    _folder: Path = PrivateAttr(default_factory=Path.cwd)

    @model_validator(mode="after")
    def _check(self) -> "BoardConfig":
        for name, statistic in self.statistics.items():
            if not re.fullmatch(r"[a-z0-9_]{1,40}", name):
                raise ValueError("expected names of statistics of a-z, 0-9 and _, at most 40")
            self._check_statistic(statistic)
        if (self.feedback.mode == "sealed") != (self.data.public == 0):
            raise ValueError(
                'mode = "sealed" and public = 0 need each other: no part gives feedback'
            )
        told = self.feedback.mode in ("ladder", "record")
        if told and self.limits.releases is None:
            raise ValueError(f'mode = "{self.feedback.mode}" needs releases and budget in limits')
        return self

    def _check_statistic(self, statistic: StatisticSection) -> None:
        possible = _UPLOADS[statistic.kind]
        if self.data.upload not in possible:
            expected = " or ".join(possible)
            raise ValueError(f'kind = "{statistic.kind}" needs upload = {expected}')
        if statistic.kind == "auroc" and self.data.classes != 2:
            raise ValueError('kind = "auroc" needs classes = 2')

    @property
    def first(self) -> str:
        """The name of the statistic that ranks."""
        return next(iter(self.statistics))

    @property
    def folder(self) -> Path:
        """The folder that paths are relative to."""
        return self._folder

    def path(self, relative: Path | str) -> Path:
        """Return a path of the configuration from the folder of ``board.toml``."""
        return self._folder / relative

    @property
    def ledger_url(self) -> str:
        """The ledger's URL; an SQLite file stands in the folder of ``board.toml``."""
        own = self.store.ledger
        if not own.startswith("sqlite:///"):
            return own
        return f"sqlite:///{self.path(own.removeprefix('sqlite:///')).absolute()}"


def read_config(path: Path) -> BoardConfig:
    """Read a ``board.toml``; raise a HoldoutError that names the line to change."""
    if problem := why_unreadable(path):
        raise HoldoutError(f"Expected a board.toml at {path}, but {problem}.")
    if path.stat().st_size > _MOST_BYTES:
        raise HoldoutError(f"Expected a board.toml below 1 MB at {path}.")
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        config = BoardConfig.model_validate(content)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        reason = f"it is not TOML: {error}"
    except RecursionError:
        reason = "it is nested too deeply"
    except ValidationError as error:
        reason = "; ".join(_sentence(problem) for problem in error.errors()[:5])
    else:
        config._folder = path.absolute().parent
        return config
    raise HoldoutError(f"Expected a complete board.toml at {path}, but {reason}.")


def _sentence(problem: Any) -> str:
    place = ".".join(str(part) for part in problem["loc"])
    words = str(problem["msg"]).removeprefix("Value error, ")
    return f"{place}: {words}" if place else words


def address_of(text: str) -> tuple[str, int]:
    """Return host and port of ``host:port``; port 0 lets the system choose.

    Example:
        >>> address_of("127.0.0.1:8700"), address_of("[::1]:0")
        (('127.0.0.1', 8700), ('::1', 0))
    """
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65_535:
        raise ValueError("expected host:port, such as 127.0.0.1:8700")
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Whether a host is this machine and no other can reach it.

    Example:
        >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
        (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
