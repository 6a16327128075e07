"""The other door: members' raw outputs become answers only here, and only after they are paid."""

import json
import math
from collections.abc import Callable, Sized
from dataclasses import asdict
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from torch_holdout.accounting import sampling_delta
from torch_holdout.checks import require_choice, require_instance, require_text, require_whole
from torch_holdout.data_fingerprint import DataFingerprint
from torch_holdout.errors import BudgetExhaustedError, HoldoutError, InvalidArgumentError
from torch_holdout.holdout import ReusableHoldout
from torch_holdout.ledger import Purpose
from torch_holdout.noise import NoiseSource, SeededNoise, SystemNoise
from torch_holdout.prediction.budget import PrivacyBudget, TrainingRecords
from torch_holdout.prediction.cache import AnswerCache
from torch_holdout.prediction.mechanisms.base import OUT_OF_BUDGET, PredictionMechanism, Setting
from torch_holdout.prediction.private_loss import PrivateLoss
from torch_holdout.prediction.private_value import PrivateValue
from torch_holdout.prediction.status import PredictionPlan, PredictionStatus
from torch_holdout.prediction.validation import validate
from torch_holdout.prediction.voters import Voters
from torch_holdout.results import Answer
from torch_holdout.traces import without_trace

OnExhausted = Literal["raise", "abstain", "fallback"]


class PrivatePredictorHooks(nn.Module):
    """Answer queries from models trained on sensitive records, within a budget.

    A batch is charged to the records' account and committed before any of it is answered; a batch
    that the budget does not cover is refused, or abstained from, as a whole. The account belongs to
    the records: every predictor and process shares it, and checkpoints, copies and restarts refund
    nothing. Labels are int64, values float64; both stay on the device.

    Guarantee:
        All answers together are (epsilon, delta)-differentially private for the training records
        and the printed neighbouring relation, also when queries are chosen adaptively, provided
        that members see nothing but their own part (``ensemble.verify_isolation``) and that only
        answers leave. The models themselves and their checkpoints stay as secret as the records.

    Args:
        ensemble: A ``PartitionedEnsemble``, or a ``StableModel``.
        mechanism: How outputs become an answer, e.g. ``SoftMajority(eta=0.1)``.
        budget: What everything may cost together.
        ledger: Where the account is: ``sqlite:///private.db``, or ``memory://`` for a throw-away.
        name: The records' name in that ledger.
        on_exhausted: For a batch beyond the budget: ``"raise"``, ``"abstain"`` (labels are -2,
            values NaN) or ``"fallback"`` (a public model answers).
        fallback: That public model, of inputs; its scores ``[B, C]`` become labels.
        cache: How many answers to remember per tenant, so that repeats are the same and free; 0 for
            none. It reads inputs back to the host.
        fingerprint: ``th.fingerprint(train_set)``, so that renaming cannot refill.
        num_outputs: Number of classes, where the models do not know it yet.
        track_private_loss: Keep the data-dependent cost of a soft majority; see ``private_epsilon``.
        seed: Reproducible noise, for tests only; it is marked in the ledger.
    """

    trainer: Any  # Lightning's

    def __init__(
        self,
        ensemble: nn.Module,
        mechanism: PredictionMechanism,
        *,
        budget: PrivacyBudget,
        ledger: str,
        name: str,
        on_exhausted: OnExhausted = "raise",
        fallback: Callable[[Any], Tensor] | None = None,
        cache: int = 0,
        fingerprint: DataFingerprint | None = None,
        num_outputs: int | None = None,
        track_private_loss: bool = False,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        require_instance("ensemble", ensemble, Voters)
        require_instance("mechanism", mechanism, PredictionMechanism)
        require_choice("on_exhausted", on_exhausted, ("raise", "abstain", "fallback"))
        if (fallback is None) == (on_exhausted == "fallback"):
            raise InvalidArgumentError(
                "Expected `fallback` to be a public model exactly when on_exhausted='fallback'."
            )
        require_whole("cache", cache, 0, 10**9)
        if num_outputs is not None:
            require_whole("num_outputs", num_outputs, 1, 2**20)
        self.ensemble = ensemble
        self.mechanism = mechanism
        self.on_exhausted = on_exhausted
        self.fallback = fallback
        self._declared_outputs = num_outputs
        self._noise: NoiseSource = SystemNoise() if seed is None else SeededNoise(seed)
        self._records = TrainingRecords(
            ledger,
            name=name,
            budget=budget,
            neighbours=self._voters.neighbours,
            fingerprint=fingerprint,
            seeded=self._noise.seeded,
        )
        self._cache = AnswerCache(cache) if cache else None
        self._cached_weights: tuple[tuple[int, int], ...] = ()
        self._refused: int | None = None  # the smallest batch the budget did not cover
        self._private_loss = None
        if track_private_loss:
            self._private_loss = PrivateLoss(mechanism)
        mechanism.require_voters(self._voters)

    def forward(self, inputs: Any, *, tenant: str = "default") -> Tensor:
        """Answer one batch of queries: labels ``[B]``, or values.

        Args:
            inputs: What every member takes, a query per row.
            tenant: Whose cache is used.
        """
        require_text("tenant", tenant)
        # Frames hold votes: whatever goes wrong leaves without them.
        return without_trace(lambda: self._answers(inputs, tenant, "prediction"))

    def predict_step(self, batch: Any, batch_idx: int = 0, dataloader_idx: int = 0) -> Tensor:
        """Answer a loader's batch; of a tuple or list the first part is the inputs."""
        return self(batch[0] if isinstance(batch, tuple | list) else batch)

    def on_predict_start(self) -> None:
        """Refuse at once what the budget cannot cover, so that no answer is lost half way."""
        if self.on_exhausted != "raise" or self._cache is not None:
            return
        asked = _queries_of(self.trainer)
        if asked is not None and asked > (left := self.plan().queries_left):
            raise self._exhausted(asked, left)

    def plan(self) -> PredictionPlan:
        """Say how many queries the budget buys, and how many are left; charges nothing."""
        setting = self._setting(None)
        charge = self.mechanism.charge(setting)
        budget = self._records.budget
        return PredictionPlan(
            mechanism=repr(self.mechanism),
            queries=budget.queries_for(charge),
            queries_left=self._records.left(charge),
            epsilon=budget.epsilon,
            delta=budget.delta,
            epsilon_per_query=charge.epsilon,
            relation=str(self._voters.neighbours),
            num_parts=setting.num_parts,
            num_outputs=setting.num_outputs,
        )

    def status(self) -> PredictionStatus:
        """Return counts and privacy: all of it public."""
        setting = self._setting(None)
        found = self._records.summary()
        budget = self._records.budget
        queries, spent = (0, 0) if found is None else (found.queries, found.spent)
        order = None if found is None else found.registration["derived"]["order"]
        capacity = budget.capacity_at(order) if found is None else found.capacity
        variation = queries * self.mechanism.sampler_error(setting)
        return PredictionStatus(
            name=self._records.name,
            ledger=self._records.address,
            queries=queries,
            queries_left=self._records.left(self.mechanism.charge(setting)),
            epsilon=budget.epsilon,
            delta=budget.delta,
            epsilon_spent=spent / 1e12 if budget.delta is None else None,
            share_spent=spent / capacity if capacity else 1.0,
            order=order,
            relation=str(self._voters.neighbours),
            sampler_error=sampling_delta(budget.epsilon, variation),
            renaming_detected=found is not None and found.fingerprinted,
            seeded=self._noise.seeded,
        )

    def validate(
        self, holdout: ReusableHoldout, name: str, loader: Any, *, version: str = ""
    ) -> Answer:
        """Ask a reusable holdout for this predictor's expected accuracy, in one charge.

        See ``torch_holdout.prediction.validation``.
        """
        return validate(
            self.ensemble, self.mechanism, self._records, holdout, name, loader, version=version
        )

    def private_epsilon(self, delta: float) -> PrivateValue:
        """Return the data-dependent epsilon of the votes this object has answered so far.

        It is smaller than the cap where members agree *because* of the private records: it must not
        be published, logged or stopped on. Nothing is charged by it.
        """
        if self._private_loss is None:
            raise InvalidArgumentError(
                "Expected track_private_loss=True when the predictor was made; nothing was kept."
            )
        return self._private_loss.epsilon(delta)

    def label(self, inputs: Any) -> Tensor:
        """Answer a batch for distillation; the ledger says so."""
        return without_trace(lambda: self._answers(inputs, "default", "distillation"))

    def extra_repr(self) -> str:
        """Show what is public."""
        return f"mechanism={self.mechanism!r}, records={self._records!r}"

    @property
    def records(self) -> TrainingRecords:
        """The account of the training records."""
        return self._records

    def _answers(self, inputs: Any, tenant: str, purpose: Purpose) -> Tensor:
        if self._cache is None:
            return self._ask(inputs, purpose)[0]
        self._forget_if_retrained()
        keys = self._cache.keys(tenant, inputs)
        known = {key: self._cache.get(tenant, key) for key in keys}
        # The same query twice in a batch is one query.
        new = {key: row for row, key in enumerate(keys) if known[key] is None}
        rows = torch.tensor(list(new.values()), dtype=torch.int64, device=inputs.device)
        answers, paid = self._ask(inputs[rows], purpose)
        if paid:
            self._cache.put(tenant, list(new), answers)
        given = dict(zip(new, answers.cpu(), strict=True))
        found = [given[key] if known[key] is None else known[key] for key in keys]
        return torch.stack(found).to(answers.device) if found else answers

    @torch.no_grad()
    def _ask(self, inputs: Any, purpose: Purpose) -> tuple[Tensor, bool]:
        """Answer a batch, or not, as a whole; say whether it was paid for."""
        rows = _rows(inputs)
        if self._refused is not None and rows is not None and rows >= self._refused:
            return self._without_asking(inputs, rows), False
        table = self._table(inputs)
        setting = self._setting(table)
        charge = self.mechanism.charge(setting)
        before: int | None = 0
        if len(table):
            before = self._records.pay(
                charge, len(table), purpose=purpose, detail=self._detail(setting)
            )
        if before is None:
            # What is left never grows, so larger batches need not be computed any more.
            self._refused = min(len(table), self._refused or len(table))
            return self._without_asking(inputs, len(table)), False
        # Only here, after the commit, does anything leave.
        uniforms = self._noise.uniforms(self._records.name, before)
        answers = self.mechanism.answer(table, setting, uniforms)
        if self._private_loss is not None:
            self._private_loss.add(table)
        return answers, True

    def _table(self, inputs: Any) -> Tensor:
        """Add up what the members say. Raw."""
        if any(module.training for module in self.ensemble.modules()):
            self.ensemble.eval()
        total: Tensor | None = None
        failure = "no outputs"
        try:
            for outputs in self._voters.output_chunks(inputs):
                part = self.mechanism.table(outputs)
                total = part if total is None else total + part
        except HoldoutError:
            raise
        except Exception as error:
            total, failure = None, type(error).__name__
        if total is None:
            raise InvalidArgumentError(
                f"Expected inputs that every member can take, one query per row, but the models "
                f"gave {failure} for {_shapes(inputs)}. Nothing was charged. An error's own message "
                f"is withheld, because it may quote what is private."
            )
        return total

    def _setting(self, table: Tensor | None) -> Setting:
        declared = self._declared_outputs or self._voters.num_outputs
        found = declared
        if table is not None:
            found = table.shape[1] if table.ndim > 1 else 1
        if found is None:
            raise InvalidArgumentError(
                "Expected to know the number of classes, which decides what a query costs. Fit or "
                "load the ensemble first, or pass num_outputs=."
            )
        if declared is not None and found != declared:
            raise InvalidArgumentError(
                f"Expected {declared} outputs for each query, as declared or seen in training, but "
                f"the models gave {found}. Nothing was charged."
            )
        return Setting(
            num_parts=self._voters.num_parts,
            num_outputs=found,
            members_changed=self._voters.neighbours.members_changed,
        )

    def _without_asking(self, inputs: Any, queries: int) -> Tensor:
        if self.on_exhausted == "raise":
            raise self._exhausted(queries, self.plan().queries_left)
        device = next((t.device for t in self.ensemble.parameters()), torch.device("cpu"))
        labels = self.mechanism.answers == "labels"
        if self.fallback is None:
            shape = (queries,) if labels else self.mechanism.value_shape(queries, self._setting(None))
            code, kind = (OUT_OF_BUDGET, torch.int64) if labels else (math.nan, torch.float64)
            return torch.full(shape, code, dtype=kind, device=device)
        given = self.fallback(inputs)
        if labels:
            return given.argmax(dim=-1) if given.is_floating_point() else given.to(torch.int64)
        return given.to(torch.float64)

    def _exhausted(self, queries: int, left: int) -> BudgetExhaustedError:
        return BudgetExhaustedError(
            f"Expected the budget of records {self._records.name!r} to cover {queries} queries, but "
            f"{left} are left. Nothing was charged, and no query of the batch was answered: ask "
            f"fewer at once, or choose on_exhausted='abstain' or 'fallback'."
        )

    def _detail(self, setting: Setting) -> str:
        content = {"mechanism": self.mechanism.identity(), **asdict(setting)}
        return json.dumps(content, sort_keys=True)

    def _forget_if_retrained(self) -> None:
        weights = tuple((id(tensor), tensor._version) for tensor in self.ensemble.parameters())
        if self._cache is not None and weights != self._cached_weights:
            self._cache.clear()
            self._cached_weights = weights

    @property
    def _voters(self) -> Voters:
        return cast(Voters, self.ensemble)  # checked in __init__


def _rows(inputs: Any) -> int | None:
    return len(inputs) if isinstance(inputs, Tensor) and inputs.ndim else None


def _shapes(inputs: Any) -> str:
    if isinstance(inputs, Tensor):
        return f"{tuple(inputs.shape)} {inputs.dtype}"
    return type(inputs).__name__


def _queries_of(trainer: Any) -> int | None:
    """Return how many queries a prediction run will ask, if its loaders know."""
    loaders = trainer.predict_dataloaders
    loaders = loaders if isinstance(loaders, list | tuple) else [loaders]
    total = 0
    for loader, batches in zip(loaders, trainer.num_predict_batches, strict=True):
        if not isinstance(loader, DataLoader) or not isinstance(loader.dataset, Sized):
            return None
        size = len(loader.dataset)
        if loader.batch_size is not None:
            size = min(size, batches * loader.batch_size * trainer.world_size)
        total += size
    return total
