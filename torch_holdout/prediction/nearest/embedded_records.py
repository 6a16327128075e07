"""Private records under a public embedding: added and removed at any time, never trained on."""

from collections.abc import Iterator, Sequence
from typing import Any, NoReturn, final

import torch
from torch import Tensor, nn

from torch_holdout._noise.streams import fresh_secret
from torch_holdout._shared.checks import require_callable, require_choice, require_whole
from torch_holdout._shared.tracebacks import without_frames
from torch_holdout.errors import HoldoutMismatchError, InvalidArgumentError
from torch_holdout.prediction.mechanisms.base import NearestVoters
from torch_holdout.prediction.nearest.embedding import Embed, Embedding
from torch_holdout.prediction.nearest.incoming import Incoming, names_of, read_records
from torch_holdout.prediction.nearest.placed import Name, placed
from torch_holdout.prediction.nearest.search import LARGEST, MOST_RECORDS, nearest_labels
from torch_holdout.prediction.neighbours import Neighbours, Unit


@final
class EmbeddedRecords(nn.Module, NearestVoters):
    """Sensitive records as points of a public embedding; the nearest of a query vote.

    Nothing is trained. ``NeighbourVotes`` makes private answers of the records; how many there are,
    the records themselves and a checkpoint of this object, which holds them, are secret.

    Guarantee:
        Which of two records is nearer to a query depends on the query and these two alone, bit for
        bit: each is embedded by itself, embeddings are whole numbers and products of them exact.
        So one record more or less (one user, for ``unit="user"``) moves one vote, as the charge of
        ``NeighbourVotes`` assumes. The embedding must be public: nothing of the records, not even
        a mean to normalise by, may have gone into it. It must also be the same for all records.

    Args:
        embed: A frozen module or a function: a batch of inputs to real numbers ``[B, d]``, d at
            most 1,000. It is asked in eval mode, for one record or for a batch of queries.
        num_classes: How many labels there are, from 0.
        unit: Who is protected: each ``"record"``, or each ``"user"`` with all records.

    Example:
        >>> records = EmbeddedRecords(nn.Flatten(), num_classes=2)
        >>> records.add(torch.eye(3), torch.tensor([0, 1, 1]), ids=["a", "b", "c"])
        >>> records.remove(["b"])
        >>> records
        EmbeddedRecords(
          num_classes=2, unit='record'
          (embed): Flatten(start_dim=1, end_dim=-1)
        )
    """

    records_change = True

    def __init__(self, embed: Embed, *, num_classes: int, unit: Unit = "record") -> None:
        super().__init__()
        require_callable("embed", embed)
        require_whole("num_classes", num_classes, 2, 2**20)
        require_choice("unit", unit, ("record", "user"))
        self.embed = embed
        self.unit: Unit = unit
        self.num_outputs: int | None = int(num_classes)
        self.revision: object = object()
        # It has no numbers, and the device that the records are on.
        self.place = nn.Parameter(torch.empty(0), requires_grad=False)
        self._embedding = Embedding()
        self._secret = fresh_secret()
        self._placed = self._place_records(torch.zeros(0, 0), torch.zeros(0), [], [])

    @without_frames
    def add(
        self,
        inputs: Incoming,
        labels: Tensor | Sequence[int] | None = None,
        *,
        ids: Sequence[Name] | Tensor | None = None,
        users: Sequence[Name] | Tensor | None = None,
    ) -> None:
        """Add records, all or none; each is embedded by itself.

        A record whose embedding is not finite counts as one of zeros, silently. The shape and
        number type of records, and that labels are below ``num_classes``, are taken to be public.

        Args:
            inputs: A batch of inputs, a tensor or an array with a row for each record; or a dataset
                or DataLoader of pairs.
            labels: Their classes, whole numbers; None for pairs.
            ids: Names to remove them by, whole numbers or text, each once; None for no names.
            users: Whose they are; needed for ``unit="user"``.

        Example:
            >>> from torch.utils.data import TensorDataset
            >>> records = EmbeddedRecords(nn.Identity(), num_classes=2, unit="user")
            >>> pairs = TensorDataset(torch.eye(3), torch.tensor([0, 1, 1]))
            >>> records.add(pairs, users=["ann", "bob", "bob"])
        """
        if users is None and self._by_user:
            raise InvalidArgumentError(
                "Expected `users` to say whose each record is, because users are the unit that "
                "is protected, but got None. Nothing was added."
            )
        with self.members_lock:
            arriving = read_records(inputs, labels, self.num_outputs or 0, self.place.device)
            self._embedding.require_usable(self.embed, arriving.layout, self.place.device)
            codes = self._embedding.records(self.embed, arriving.rows)
            self._embedding.require_unmoved(self.embed, arriving.layout, self.place.device)
            absent: list[Name | None] = [None] * len(codes)
            names = absent if ids is None else names_of("ids", ids, len(codes))
            owners = absent if users is None else names_of("users", users, len(codes))
            self._require_new(names, len(codes))
            more = self._place_records(codes, arriving.labels(), names, owners)
            self._replace(self._placed.with_records(more, by_user=self._by_user))

    @without_frames
    def remove(self, ids: Sequence[Name] | Tensor) -> None:
        """Remove records by the names they were added with, all or none.

        What was answered before stays answered and charged: the account does not change.

        Example:
            >>> records = EmbeddedRecords(nn.Identity(), num_classes=2)
            >>> records.add(torch.eye(2), [0, 1], ids=[7, 8])
            >>> records.remove([8])
        """
        with self.members_lock:
            gone = self._known("ids", ids, self._placed.ids)
            self._replace(self._placed.without(lambda name, _: name in gone, by_user=self._by_user))

    @without_frames
    def remove_users(self, users: Sequence[Name] | Tensor) -> None:
        """Remove all records of some users, all or none.

        Example:
            >>> records = EmbeddedRecords(nn.Identity(), num_classes=2)
            >>> records.add(torch.eye(2), [0, 1], users=["ann", "bob"])
            >>> records.remove_users(["bob"])
        """
        with self.members_lock:
            gone = self._known("users", users, self._placed.users)
            self._replace(self._placed.without(lambda _, user: user in gone, by_user=self._by_user))

    def nearest(self, inputs: Any, count: int) -> Tensor:
        """Return the labels of the records (or users) nearest to queries, int32 [B, count]. Raw.

        Nearest first; places that are left over are -1. Only the embedding of the queries, which is
        public, can raise.
        """
        with self.members_lock:
            codes = self.public_outputs(inputs)
            searched = self._placed.found
            if codes.shape[1] != searched.codes.shape[1]:  # nothing was ever added
                searched = self._place_records(codes[:0].cpu(), torch.zeros(0), [], []).found
            return nearest_labels(codes.to(searched.codes.device), searched, count)

    def forward(self, inputs: Any) -> NoReturn:
        """Raise: outputs of records are private."""
        raise _no_scores()

    @property
    def num_parts(self) -> int:
        """One: the records are not cut into parts."""
        return 1

    @property
    def neighbours(self) -> Neighbours:
        """The protected change: one record, or one user, comes or goes."""
        return Neighbours(relation="add-remove", unit=self.unit)

    @property
    def source(self) -> str:
        """What answers are made from."""
        return f"the nearest {self.unit}s"

    @property
    def protects(self) -> str:
        """Who is protected."""
        return f"adding or removing one {self.unit}"

    def require_mechanism(self, kind: str) -> None:
        """Raise: a mechanism that counts the votes of members has none here."""
        raise InvalidArgumentError(
            f"Expected NeighbourVotes, which answers from nearest records, but got {kind}. Take "
            f"NeighbourVotes.for_budget(...), or give {kind} an ensemble."
        )

    def public_outputs(self, inputs: Any) -> Tensor:
        """Return the whole numbers of the queries' embeddings, which are public."""
        return self._embedding.queries(self.embed, inputs)

    def output_chunks(self, inputs: Any) -> Iterator[Tensor]:
        """Raise: there are no members with scores."""
        raise _no_scores()

    def identity(self) -> dict[str, Any]:
        """Return public facts, and nothing of the records."""
        return {"kind": "embedded-records", "unit": self.unit, "num_classes": self.num_outputs}

    def get_extra_state(self) -> dict[str, Any]:
        """Return the records, and the secret that breaks ties: as secret as the records."""
        with self.members_lock:
            found = self._placed.found
            return {
                "made": self.identity(),
                "dimensions": self._embedding.dimensions,
                "embedding": self._embedding.identity,
                "secret": self._secret.hex(),
                "codes": found.codes.to("cpu", torch.int8),
                "labels": found.labels.cpu(),
                "ids": list(self._placed.ids),
                "users": list(self._placed.users),
            }

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Take the records of a state; the embedding is compared before the next query."""
        if state["made"] != self.identity():
            raise HoldoutMismatchError(
                f"Expected records of {self.identity()}, but the state has records of "
                f"{state['made']}. Build EmbeddedRecords as they were."
            )
        if not _is_whole(state):
            raise HoldoutMismatchError(
                "Expected records as `state_dict()` returned them, but some were converted, edited "
                "or left out of the state. Nothing was loaded."
            )
        with self.members_lock:
            self._embedding = Embedding(state["dimensions"], state["embedding"])
            self._secret = bytes.fromhex(state["secret"])
            names, users = state["ids"], state["users"]
            self._replace(self._place_records(state["codes"], state["labels"], names, users))

    def extra_repr(self) -> str:
        """Return the public facts."""
        function = "" if isinstance(self.embed, nn.Module) else f"embed={_name(self.embed)}, "
        return f"{function}num_classes={self.num_outputs}, unit={self.unit!r}"

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("unit", "num_outputs") and "_placed" in self.__dict__:
            raise InvalidArgumentError(
                f"Expected new EmbeddedRecords for another {name}: accounts and charges were made "
                f"for the one that these have. Nothing was changed."
            )
        super().__setattr__(name, value)

    @property
    def _by_user(self) -> bool:
        return self.unit == "user"

    def _apply(self, fn: Any, recurse: bool = True) -> "EmbeddedRecords":
        """Move the records with the embedding; their number type stays."""
        with self.members_lock:
            super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
            self._placed = self._placed.to(_searching(self.place.device))
        return self

    def _replace(self, records: Any) -> None:
        self._placed = records.to(_searching(self.place.device))
        self.revision = object()  # not a count, which would tell how many calls there were

    def _place_records(self, codes: Tensor, labels: Tensor, ids: Any, users: Any) -> Any:
        return placed(codes, labels, ids, users, secret=self._secret, by_user=self._by_user)

    def _require_new(self, names: Sequence[Name | None], arriving: int) -> None:
        given = [name for name in names if name is not None]
        known = set(given)
        if len(known) < len(given) or not known.isdisjoint(self._placed.ids):
            raise InvalidArgumentError(
                "Expected each of `ids` once, and none that is there already, but at least one is "
                "not new. Remove it first, or choose another. Nothing was added."
            )
        if len(self._placed.ids) + arriving > MOST_RECORDS:
            raise InvalidArgumentError(
                f"Expected at most {MOST_RECORDS:,} records in one store. Nothing was added."
            )

    def _known(self, kind: str, given: Any, there: tuple[Name | None, ...]) -> set[Name]:
        names = set(names_of(kind, given, None))
        if not names <= set(there):
            raise InvalidArgumentError(
                f"Expected `{kind}` that records were added with, but at least one is not there: "
                f"it was never added, or is gone. Nothing was removed."
            )
        return names


def _is_whole(state: dict[str, Any]) -> bool:
    """Whether a state's records are such as ``add`` makes: in an exact order, of known classes."""
    codes, labels, users = state["codes"], state["labels"], state["users"]
    size, made = (len(state["ids"]),), state["made"]
    kinds = (codes.dtype, labels.dtype) == (torch.int8, torch.int64)
    owned = made["unit"] == "record" or None not in users
    if not kinds or not owned or (codes.shape[:1], labels.shape, (len(users),)) != (size,) * 3:
        return False
    known = (labels >= 0) & (labels < made["num_classes"])
    return bool(known.all() & (codes >= -LARGEST).all()) and (
        not len(codes) or codes.shape[1:] == (state["dimensions"],)
    )


def _searching(device: torch.device) -> torch.device:
    # What has no double precision searches on the host.
    return torch.device("cpu") if device.type == "mps" else device


def _name(embed: Any) -> str:
    return str(getattr(embed, "__name__", type(embed).__name__))


def _no_scores() -> InvalidArgumentError:
    return InvalidArgumentError(
        "Expected records to be asked through PrivatePredictor(records, NeighbourVotes(...), ...): "
        "they have no scores of their own."
    )
