"""The other door: only here do members' raw outputs become answers, after they are charged."""

import json
import logging
import math
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, ClassVar, Literal, cast

import torch
from torch import Tensor, nn

from torch_holdout._fingerprints.data import DataFingerprint
from torch_holdout._noise.streams import NoiseSource, SeededNoise, SystemNoise
from torch_holdout._shared.checks import (
    require_choice,
    require_instance,
    require_text,
    require_whole,
)
from torch_holdout._shared.locks import lock_of, without_lock
from torch_holdout._shared.tracebacks import errors_by_type, without_trace
from torch_holdout.accounting import Charge
from torch_holdout.errors import BudgetExhaustedError, InvalidArgumentError
from torch_holdout.holdout.door import ReusableHoldout
from torch_holdout.holdout.results import Answer
from torch_holdout.ledger.records import ChargePurpose
from torch_holdout.prediction.budget import PrivacyBudget
from torch_holdout.prediction.cache import AnswerCache
from torch_holdout.prediction.fallback import fallback_answers
from torch_holdout.prediction.mechanisms.base import (
    OUT_OF_BUDGET,
    PredictionMechanism,
    Setting,
    Voters,
)
from torch_holdout.prediction.plain_inputs import (
    outside_graphs,
    refuse_script,
    require_plain_inputs,
)
from torch_holdout.prediction.private_loss import PrivateLoss, PrivateValue
from torch_holdout.prediction.query_counts import count_queries, queries_of_run
from torch_holdout.prediction.records import TrainingRecords
from torch_holdout.prediction.status import PredictionPlan, PredictionStatus, records_status
from torch_holdout.prediction.validation import refused_inputs, validate

_log = logging.getLogger("torch_holdout")
OnExhausted = Literal["raise", "abstain", "fallback"]


class PrivatePredictorHooks(nn.Module):
    """Answer queries within a budget, for either Lightning package."""

    trainer: Any  # Lightning's
    module_class: ClassVar[Any] = nn.Module  # the namespace's LightningModule ...
    trainer_class: ClassVar[Any] = object  # ... and Trainer
    _told = False  # whether it was said that the budget has ended

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
        """Answer queries from models trained on sensitive records, within a budget.

        A batch is charged to the records' account and committed before any of it is answered; a
        batch that the budget does not cover is refused, or abstained from, as a whole. The account
        belongs to the records: every predictor and process shares it, and checkpoints, copies and
        restarts refund nothing. Labels are int64, values float64; both stay on the device. Threads
        may share a predictor; it cannot be exported or traced, and runs outside compiled graphs.

        Guarantee:
            All answers together are (epsilon, delta)-differentially private for the training
            records and the printed neighbouring relation, also when queries are chosen adaptively,
            provided that members see nothing but their own part (``verify_isolation`` tests it) and
            that only answers leave. The models themselves and their checkpoints stay as secret as
            the records.

        Args:
            ensemble: A ``PartitionedEnsemble``, ``EmbeddedRecords``, or a ``StableModel``.
            mechanism: How outputs become an answer, e.g. ``SoftMajority(eta=0.1)``.
            budget: The cap on the cost of all answers together.
            ledger: Where the account is, e.g. ``sqlite:///private.db``, or ``memory://``.
            name: The records' name in that ledger.
            on_exhausted: For a batch beyond the budget: ``"raise"``, ``"abstain"`` (labels are -2,
                values NaN) or ``"fallback"`` (a public model answers).
            fallback: That public model, of inputs; its scores ``[B, C]`` become labels.
            cache: How many answers to keep per tenant: a repeated query gets the same answer, free.
                0 for none. It reads inputs back to the host.
            fingerprint: ``th.fingerprint(train_set)``, so that renaming cannot refill.
            num_outputs: Number of classes, where the models do not know it yet.
            track_private_loss: Keep a soft majority's data-dependent cost; see ``private_epsilon``.
            seed: Reproducible noise, for tests only; it is marked in the ledger.

        Example:
            >>> from functools import partial
            >>> import torch
            >>> from torch import nn
            >>> from torch_holdout.prediction import (
            ...     Partition, PartitionedEnsemble, PrivacyBudget, PrivatePredictor, SoftMajority)
            >>> ensemble = PartitionedEnsemble(
            ...     lambda: nn.Linear(8, 3), Partition(num_parts=50, key="index", seed=7),
            ...     loss=nn.functional.cross_entropy, optimizer=partial(torch.optim.SGD, lr=0.1))
            >>> predictor = PrivatePredictor(
            ...     ensemble, SoftMajority(eta=0.1), budget=PrivacyBudget(epsilon=2.0, delta=1e-5),
            ...     ledger="memory://", name="records")
            >>> predictor(torch.zeros(4, 8)).shape, predictor.status().queries
            (torch.Size([4]), 4)
        """
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
            changing=self._voters.records_change,
            seeded=self._noise.seeded,
        )
        self._cache = AnswerCache(cache) if cache else None
        self._refused: int | None = None  # the smallest batch the budget did not cover
        self._private_loss = None
        if track_private_loss:
            self._private_loss = PrivateLoss(mechanism, self._voters.neighbours)
        mechanism.require_voters(self._voters)

    @outside_graphs
    def forward(self, inputs: Any, *, tenant: str = "default") -> Tensor:
        """Answer one batch of queries: labels ``[B]``, or values.

        Args:
            inputs: What every member takes, a query per row.
            tenant: Whose cache is used.
        """
        require_plain_inputs(inputs)
        require_text("tenant", tenant)
        # Frames hold votes: no error may carry them out.
        return without_trace(lambda: self._answers(inputs, tenant, "prediction"))

    @outside_graphs
    def predict_step(self, batch: Any, batch_idx: int = 0, dataloader_idx: int = 0) -> Tensor:
        """Answer a loader's batch; of a tuple or list the first part is the inputs."""
        parts = isinstance(batch, tuple | list) and len(batch) > 0
        return self.forward(batch[0] if parts else batch)

    def on_predict_start(self) -> None:
        """Raise if the budget cannot cover the whole run, so that no answer is lost half way."""
        if self.on_exhausted != "raise" or self._cache is not None:
            return
        asked = queries_of_run(self.trainer)
        if asked is not None and asked > (left := self.plan().queries_left):
            raise self._exhausted(asked, left)

    def plan(self) -> PredictionPlan:
        """Return how many queries the budget buys and how many are left; charges nothing."""
        setting, charge, budget = self._setting(None), self.charge(), self._records.budget
        return PredictionPlan(
            mechanism=repr(self.mechanism),
            queries=budget.queries_for(charge),
            queries_left=self._records.left(charge),
            epsilon=budget.epsilon,
            delta=budget.delta,
            epsilon_per_query=charge.epsilon,
            relation=self._voters.protects,
            source=self._voters.source,
            num_parts=setting.num_parts,
            num_outputs=setting.num_outputs,
        )

    def status(self) -> PredictionStatus:
        """Return the counts and the privacy of the records' account; all public."""
        charge, records = self.charge(), self._records
        left = records.left(charge)
        return records_status(records.summary(charge), records.address, queries_left=left)

    def charge(self) -> Charge:
        """Return the charge of one query."""
        return self.mechanism.charge(self._setting(None))

    @outside_graphs
    def validate(self, holdout: ReusableHoldout, name: str, loader: Any, *, query: str) -> Answer:
        """Ask a reusable holdout for this predictor's expected accuracy, in one charge.

        ``query`` is a public name of the model: the same name is the same answer. See
        ``torch_holdout.prediction.validation``.
        """
        models, usual = (self.ensemble, self.mechanism), self.charge()
        return validate(*models, self._records, holdout, name, loader, query=query, usual=usual)

    def private_epsilon(self, delta: float) -> PrivateValue:
        """Return the data-dependent epsilon of the votes this object has answered so far.

        It is smaller than the cap where members agree *because* of the private records: it must not
        be published, logged or stopped on. Nothing is charged by it.
        """
        if self._private_loss is None:
            raise InvalidArgumentError(
                "Expected track_private_loss=True when the predictor was made; nothing was kept."
            )
        with lock_of(self):
            return self._private_loss.epsilon(delta)

    @outside_graphs
    def require_answerable(self, inputs: Any) -> None:
        """Raise unless a model with public weights takes the queries; charges nothing."""
        require_plain_inputs(inputs)
        with torch.no_grad():
            table = errors_by_type(
                lambda: self.mechanism.public_table(self._voters, inputs), refused_inputs(inputs)
            )
        self._setting(table)

    @outside_graphs
    def label(self, inputs: Any) -> Tensor:
        """Answer a batch for distillation, or raise; the ledger keeps this purpose."""
        require_plain_inputs(inputs)

        def answers() -> Tensor:
            labels = self._ask(inputs, "distillation")
            if labels is None:
                raise self._exhausted(count_queries(inputs), self.plan().queries_left)
            return labels

        return without_trace(answers)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("ensemble", "mechanism") and "_records" in self.__dict__:
            raise InvalidArgumentError(
                f"Expected a new PrivatePredictor for another {name}: this one's charges and "
                f"checks were made for the one it has. Give it the same ledger and name; the "
                f"records' account stays the same."
            )
        super().__setattr__(name, value)

    def __getstate__(self) -> dict[str, Any]:
        # A copy elsewhere must find the account: the data's fingerprint does not travel.
        if self._declared_outputs or self._voters.num_outputs:
            self._records.attach(self.charge())
        state = super().__getstate__()  # type: ignore[no-untyped-call]
        return without_lock(cast(dict[str, Any], state))

    def __prepare_scriptable__(self) -> Any:
        raise refuse_script()

    def extra_repr(self) -> str:
        """Return the public facts."""
        return f"mechanism={self.mechanism!r}, records={self._records!r}"

    @property
    def records(self) -> TrainingRecords:
        """The account of the training records."""
        return self._records

    def _answers(self, inputs: Any, tenant: str, purpose: ChargePurpose) -> Tensor:
        if self._cache is None:
            answers = self._ask(inputs, purpose)
            return self._without_asking(inputs) if answers is None else answers
        answers = self._cache.answered(
            tenant,
            inputs,
            model=self.ensemble,
            ask=lambda new: self._ask(new, purpose),
            refused=self._without_asking,
        )
        return answers.to(self._place())

    @torch.no_grad()
    def _ask(self, inputs: Any, purpose: ChargePurpose) -> Tensor | None:
        """Charge a batch and answer it; None, and nothing charged, if the budget is too small."""
        rows = count_queries(inputs)
        refused = self._refused
        if refused is not None and rows is not None and rows >= refused:
            return None
        table = self._table(inputs)
        setting = self._setting(table)
        before: int | None = 0
        if len(table):
            before = self._records.pay(
                self.mechanism.charge(setting),
                len(table),
                purpose=purpose,
                detail=json.dumps(self.mechanism.identity() | asdict(setting), sort_keys=True),
                variation=self.mechanism.sampler_error(setting),
            )
        if before is None:
            # What is left never grows: batches as large need not be computed any more.
            with lock_of(self):
                self._refused = min(len(table), self._refused or len(table))
            return None
        # Only here, after the commit, does anything leave.
        uniforms = self._noise.uniforms(self._records.name, before)
        answers = self.mechanism.answer(table, setting, uniforms)
        if self._private_loss is not None:
            with lock_of(self):
                self._private_loss.add(table)
        return answers

    def _table(self, inputs: Any) -> Tensor:
        """Add up the members' tables. Raw."""
        if any(module.training for module in self.ensemble.modules()):
            with self._voters.members_lock:
                self.ensemble.eval()
        return errors_by_type(
            lambda: self.mechanism.total_table(self._voters, inputs), refused_inputs(inputs)
        )

    def _setting(self, table: Tensor | None) -> Setting:
        with lock_of(self):
            known = self._voters.num_outputs
            declared = self._declared_outputs or known
            shown = None if table is None else self.mechanism.num_outputs(table)
            outputs = shown or known or declared
            if shown is not None:
                self._declared_outputs = declared or shown
        if outputs is None:
            raise InvalidArgumentError(
                "Expected a known number of classes, which decides the cost of a query. Fit or "
                "load the ensemble first, or pass num_outputs=."
            )
        if declared is not None and outputs != declared:
            raise InvalidArgumentError(
                f"Expected {declared} outputs for each query, as declared or seen in training, but "
                f"the models gave {outputs}. Nothing was charged."
            )
        return Setting(
            num_parts=self._voters.num_parts,
            num_outputs=outputs,
            members_changed=self._voters.neighbours.members_changed,
        )

    @torch.no_grad()
    def _without_asking(self, inputs: Any) -> Tensor:
        labels, rows = self.mechanism.answers == "labels", count_queries(inputs)
        if self.on_exhausted == "raise" or rows is None:
            raise self._exhausted(rows, self.plan().queries_left)
        with lock_of(self):
            first, self._told = not self._told, True
        if first:
            instead = "the fallback answers" if self.fallback is not None else "it abstains"
            told = "The budget of records %r does not cover %d queries; %s. It is not said again."
            _log.warning(told, self._records.name, rows, instead)
        if self.fallback is not None:
            return fallback_answers(self.fallback, inputs, labels=labels)
        shape = (rows,) if labels else self.mechanism.value_shape(rows, self._setting(None))
        code, kind = (OUT_OF_BUDGET, torch.int64) if labels else (math.nan, torch.float64)
        return torch.full(shape, code, dtype=kind, device=self._place())

    def _exhausted(self, queries: int | None, left: int) -> BudgetExhaustedError:
        asked = "this batch" if queries is None else f"{queries} queries"
        remedy = "ask fewer at once, or" if left else "this mechanism can answer no more queries;"
        return BudgetExhaustedError(
            f"Expected the budget of records {self._records.name!r} to cover {asked}, but {left} "
            f"queries are left. Nothing was charged and none of the batch was answered: {remedy} "
            f"choose on_exhausted='abstain' or 'fallback'."
        )

    def _place(self) -> torch.device:
        return next((t.device for t in self.ensemble.parameters()), torch.device("cpu"))

    @property
    def _voters(self) -> Voters:
        return cast(Voters, self.ensemble)  # checked in __init__
