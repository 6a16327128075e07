"""A board's account in its ledger: what is registered, so that a later difference is refused."""

import hashlib
import json
from typing import Any, Protocol

from torch_holdout.errors import HoldoutError
from torch_holdout.holdout.board import BoardHoldout
from torch_holdout.ledger import Ledger
from torch_holdout.ledger.engines import backend_for
from torch_holdout.mechanisms.board import Feedback
from torch_holdout.service.server.config import BoardConfig
from torch_holdout.service.server.statistics import statistic
from torch_holdout.service.server.uploads import Layout


class Part(Protocol):
    """What the account needs of the part that gives feedback: sizes and digests, nothing else."""

    @property
    def size(self) -> int:
        """How many rows it has."""

    @property
    def digest(self) -> bytes:
        """The digest of its file, under its own salt."""

    @property
    def other(self) -> bytes:
        """The digest of the vault's file."""


def holdout_of(config: BoardConfig, layout: Layout, public: Part) -> BoardHoldout:
    """Return the door of a board; its ledger is not touched yet."""
    own, limits = config.feedback, config.limits
    sections = config.statistics
    statistics = {name: statistic(section) for name, section in sections.items()}
    first = statistics[config.first]
    feedback = Feedback(
        mode=own.mode,
        baseline=own.baseline,
        step=None if own.step is None else own.step / (first.high - first.low),
        rule=own.gate_rule,
        margin=own.margin,
    )
    sealed = own.mode == "sealed"
    return BoardHoldout(
        config.ledger_url,
        name=config.board.name,
        size=layout.rows if sealed else public.size,
        vault_size=0 if sealed else layout.rows - public.size,
        statistics=statistics,
        feedback=feedback,
        budget=limits.budget or 0,
        submissions=limits.teams * limits.submissions,
        failure=limits.failure,
        registered=registered(config, layout, public),
    )


def registered(config: BoardConfig, layout: Layout, public: Part) -> dict[str, str | bytes]:
    """Return what must never change, apart from sizes, statistics, feedback and budget."""
    ids = hashlib.sha256(json.dumps(layout.ids).encode()).hexdigest()
    upload = {"rows": layout.rows, "upload": layout.upload, "classes": layout.classes, "ids": ids}
    return {
        "closes": config.board.closes_at or "never",
        "upload": json.dumps(upload),
        "finalists": str(config.limits.finalists),
        "statistics": json.dumps({name: _facts(each) for name, each in config.statistics.items()}),
        "public part": public.digest,
        "vault": public.other,
    }


def _facts(section: Any) -> dict[str, Any]:
    return {
        "kind": section.kind,
        "low": section.low,
        "high": section.high,
        "blocks": section.blocks,
    }


def is_made(config: BoardConfig) -> bool:
    """Whether the ledger has the board's account; makes nothing."""
    return backend_for(config.ledger_url).exists() and config.board.name in (
        Ledger(config.ledger_url, reads_only=True).boards()
    )


def require_account(config: BoardConfig) -> None:
    """Raise unless `board init` has made the board: a new account would be a new budget."""
    if not is_made(config):
        raise HoldoutError(
            f"Expected the board {config.board.name!r} in its ledger, but it is not there. "
            f"`torch-holdout board init` makes it, once."
        )
