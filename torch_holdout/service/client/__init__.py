"""The team's side of a board: predictions go out over HTTP, answers come back; no labels here."""

from torch_holdout.service.client.answers import BoardStatus as BoardStatus
from torch_holdout.service.client.answers import PublicStatistic as PublicStatistic
from torch_holdout.service.client.answers import Quota as Quota
from torch_holdout.service.client.answers import RemoteAnswer as RemoteAnswer
from torch_holdout.service.client.client import RemoteBoard as RemoteBoard
from torch_holdout.service.client.client import remote as remote
from torch_holdout.service.client.holdout import RemoteHoldout as RemoteHoldout

__all__ = [
    "BoardStatus", "PublicStatistic", "Quota", "RemoteAnswer", "RemoteBoard", "RemoteHoldout",
    "remote",
]  # fmt: skip
