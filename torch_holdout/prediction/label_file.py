"""A file of paid labels that knows whose they are, so that others' are not taken for them.

The labels are answers and may be published; the weights and the account's id may not. So the file
holds marks: of public facts plain hashes, of the account and the model HMACs under the ledger's
secret, with a number of the file's own. Without the ledger nobody can tell which model it was, nor
whether two files are of one model.
"""

import hashlib
import os
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor

from torch_holdout._fingerprints.hashing import digest
from torch_holdout._fingerprints.weights import weights_fingerprint
from torch_holdout._noise.streams import fresh_secret
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.prediction.mechanisms.base import NO_CONSENSUS
from torch_holdout.prediction.predictor import PrivatePredictorHooks

_VERSION = 2  # version 0.1.0 wrote no number


@final
class LabelFile:
    """The labels that were paid for so far, and the marks of what they were made from."""

    def __init__(self, path: Path, predictor: PrivatePredictorHooks, inputs: Tensor) -> None:
        self.path = path
        self._predictor = predictor
        self._inputs = inputs
        self._marks: dict[str, str] = {}
        self._number = fresh_secret(16).hex()

    def resumed(self) -> Tensor:
        """Return the labels of the file, none if there is none; raise if it is of others."""
        if not self.path.exists():
            return torch.empty(0, dtype=torch.int64)
        stored = self._read()
        account = self._predictor.records.find()
        if account is None:
            raise self._others("another account")
        self._number = str(stored["number"])
        marks = self._made(account)
        unlike = [name for name in marks if marks[name] != stored["marks"].get(name)]
        if unlike:
            raise self._others(" and ".join(f"another {name}" for name in unlike))
        labels: Tensor = stored["labels"]
        if len(labels) > min(len(self._inputs), self._predictor.status().queries):
            raise self._others("more queries than this account has paid for")
        return labels

    def begin(self, paid: Tensor) -> None:
        """Write what is paid so far: what cannot be kept must not be paid for."""
        self._marks = self._made(self._predictor.records.attach(self._predictor.charge()))
        self.keep(paid)

    def keep(self, paid: Tensor) -> None:
        """Write all paid labels, at once: the file is never seen half written."""
        content = {
            "version": _VERSION,
            "labels": paid,
            "number": self._number,
            "marks": self._marks,
        }
        draft = self.path.with_name(f".{self.path.name}.{fresh_secret(8).hex()}.new")
        try:
            torch.save(content, draft)
            os.replace(draft, self.path)
        except (OSError, RuntimeError) as error:
            failure = type(error).__name__
        else:
            return
        finally:
            draft.unlink(missing_ok=True)
        raise InvalidArgumentError(
            f"Expected to write labels to {self.path}, but the file system refused ({failure}). "
            f"Choose a writable folder."
        )

    def _read(self) -> dict[str, Any]:
        try:
            stored = torch.load(self.path, weights_only=True)
            earlier = "made" in stored
            usable = stored.get("version") == _VERSION and self._are_labels(stored["labels"])
            usable = usable and isinstance(stored["marks"], dict) and "number" in stored
        except Exception:  # cut off, or another program's
            earlier = usable = False
        if earlier:
            raise InvalidArgumentError(
                f"Expected {self.path} to say whose labels it holds, but version 0.1.0 wrote it, "
                f"which kept neither the account nor the model. Choose another file: its labels "
                f"are paid for anew. Nothing was charged."
            )
        if not usable:
            raise self._others("something else")
        content: dict[str, Any] = stored
        return content

    def _are_labels(self, stored: Any) -> bool:
        if not isinstance(stored, Tensor) or stored.dtype != torch.int64 or stored.ndim != 1:
            return False
        classes = self._predictor.plan().num_outputs
        return bool(((stored >= NO_CONSENSUS) & (stored < classes)).all())

    def _made(self, account: str) -> dict[str, str]:
        """Return the marks of what labels are made from, by the name of each."""
        predictor, records = self._predictor, self._predictor.records
        number = self._number.encode()
        budget = (records.budget, records.neighbours, records.seeded)
        rule = (sorted(predictor.mechanism.identity().items()), repr(predictor.charge()))
        return {
            "account": records.mark(account, number + b" account"),
            "model": records.mark(account, number + b" model " + self._model()),
            "mechanism": _hashed(rule),
            "budget": _hashed(budget),
            "set of inputs": digest(self._inputs).hex(),
        }

    def _model(self) -> bytes:
        """Return what identifies the models, weights included: private."""
        voters: Any = self._predictor.ensemble
        weights = weights_fingerprint(voters)
        known = weights.query([int(lane) for lane in weights.lanes.tolist()])
        kept = {  # records that are no weights, as those of nearest neighbours
            name: value
            for name, value in voters.state_dict().items()
            if name.endswith("_extra_state")
        }
        return digest([known, voters.identity(), kept], lenient=True)

    def _others(self, what: str) -> InvalidArgumentError:
        return InvalidArgumentError(
            f"Expected {self.path} to hold labels of these inputs, this account (its budget "
            f"included), this model and this mechanism, but it holds others': {what}. Choose "
            f"another file. Nothing was charged."
        )


def _hashed(facts: Any) -> str:
    return hashlib.sha256(repr(facts).encode()).hexdigest()
