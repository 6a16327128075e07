"""Members trained apart from each other; each Lightning package binds these hooks once."""

import copy
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils._pytree import tree_leaves, tree_map

from torch_holdout._noise.generators import lending
from torch_holdout._shared.checks import (
    require_between,
    require_choice,
    require_instance,
    require_whole,
)
from torch_holdout._shared.locks import without_lock
from torch_holdout._shared.tracebacks import errors_by_type, without_trace
from torch_holdout.errors import HoldoutError, InvalidArgumentError
from torch_holdout.prediction.ensemble.data import PartitionedBatch, ReadsBatches
from torch_holdout.prediction.ensemble.isolation import Isolation
from torch_holdout.prediction.ensemble.loop_isolation import verified_isolation
from torch_holdout.prediction.ensemble.members import (
    Backend,
    Loss,
    ModelFactory,
    Steps,
    VoteCounter,
    convolves_much,
    output_chunks,
    stack_members,
)
from torch_holdout.prediction.ensemble.optimizers import (
    OptimizerFactory,
    build_optimizer,
    clip_member_norms,
    require_apart,
)
from torch_holdout.prediction.ensemble.parts_mark import KnowsParts, require_marked
from torch_holdout.prediction.ensemble.probing import Choice, Probe, Prober
from torch_holdout.prediction.ensemble.requirements import (
    other_batches,
    require_fixed_loss,
    require_labels,
    require_outputs,
    require_parts,
    require_scheduler,
    require_separate_members,
)
from torch_holdout.prediction.ensemble.working_copy import deep_copied
from torch_holdout.prediction.mechanisms.base import Voters
from torch_holdout.prediction.neighbours import Neighbours
from torch_holdout.prediction.partition import Partition
from torch_holdout.prediction.plain_inputs import outside_graphs, require_plain_inputs

_Result = TypeVar("_Result")


class PartitionedEnsembleHooks(KnowsParts, ReadsBatches, Voters):
    """Train one model on each part of the data, for either Lightning package."""

    trainer: Any  # Lightning's, as the next two
    current_epoch: int
    log: Any
    trainer_class: ClassVar[Any] = object  # the namespace's Trainer
    _answering: Prober | None = None  # made when it is first needed; not copied, not pickled

    def __init__(
        self,
        model_fn: ModelFactory,
        parts: Partition,
        *,
        loss: Loss,
        optimizer: OptimizerFactory,
        scheduler: Callable[[Optimizer], Any] | None = None,
        backend: Choice = "auto",
        chunk_size: int | None = None,
        clip_norm: float | None = None,
        log_train_loss: bool = False,
        seed: int = 0,
        num_outputs: int | None = None,
    ) -> None:
        """Train one model on each part of the data, all at once, and keep them apart.

        One record is in one part, so it can change one member (two, if it may change its part): the
        votes of the members can be released with little noise, by a ``PrivatePredictor``. Whatever
        would let a record reach other members is refused; ``verify_isolation`` tests the rest.

        Args:
            model_fn: Returns a new model; called once for each member.
            parts: The partition, the same as the data module's.
            loss: Of a member's output and targets: a tensor with one number.
            optimizer: Returns the optimizer of the parameters it is given, e.g.
                ``partial(torch.optim.Adam, lr=1e-3)``. They have a leading dimension of members.
            scheduler: Returns a scheduler of the optimizer, or Lightning's dictionary.
            backend: ``"vmap"``, ``"loop"``, or ``"auto"``: vmap where the model can.
            chunk_size: How many members' activations are held at once, against little memory.
            clip_norm: The largest norm of each member's gradients.
            log_train_loss: Log the members' mean loss as ``train_loss``. It is *not private*: the
                privacy budget does not account for it.
            seed: Decides the first weights and the dropout masks.
            num_outputs: How many classes or values a model returns; None: as at the first use.

        Example:
            >>> from functools import partial
            >>> import torch
            >>> from torch import nn
            >>> from torch_holdout.prediction import Partition, PartitionedEnsemble
            >>> ensemble = PartitionedEnsemble(
            ...     lambda: nn.Linear(784, 10),
            ...     Partition(num_parts=50, key="index", seed=7),
            ...     loss=nn.functional.cross_entropy,
            ...     optimizer=partial(torch.optim.Adam, lr=1e-3),
            ... )
            >>> ensemble.members.weight.shape
            torch.Size([50, 10, 784])
            >>> ensemble.member_outputs(torch.zeros(3, 784)).shape
            torch.Size([50, 3, 10])
        """
        super().__init__()
        require_instance("parts", parts, Partition)
        require_choice("backend", backend, ("auto", "vmap", "loop"))
        require_whole("seed", seed, 0, 2**63 - 1)
        if chunk_size is not None:
            require_whole("chunk_size", chunk_size, 1, 2**20)
        if clip_norm is not None:
            require_between("clip_norm", clip_norm, 0, float("inf"), ends=False)
        if num_outputs is not None:
            require_whole("num_outputs", num_outputs, 1, 2**20)
        require_fixed_loss(loss)
        self.members = stack_members(model_fn, parts.num_parts, seed)
        self.members._register_load_state_dict_pre_hook(require_marked)  # type: ignore[no-untyped-call]
        self.partition = parts
        self.loss = loss
        self.backend: Choice = backend
        self.chunk_size = chunk_size
        self.clip_norm = clip_norm
        self.log_train_loss = log_train_loss
        self.seed = seed
        self.num_outputs = num_outputs
        self.backend_used: Backend | None = None
        self._model_fn = model_fn
        self._optimizer_factory = optimizer
        self._scheduler_factory = scheduler
        self._probe: Probe | None = None
        self._first = 0
        self._partial = False
        self._inference: dict[str, Backend] = {}

    @property
    def num_parts(self) -> int:
        """The number of members."""
        return self.partition.num_parts

    @property
    def neighbours(self) -> Neighbours:
        """Which change of the training records is protected."""
        return self.partition.neighbours

    def identity(self) -> dict[str, Any]:
        """Return the public facts that a ledger stores."""
        return {"ensemble": "partitioned", "partition": self.partition.identity()}

    @outside_graphs
    def member_outputs(self, x: Any) -> Tensor:
        """Return every member's raw output [r, B, ...], for the curator: they are private."""
        with self.members_lock:
            return torch.cat(list(self.output_chunks(x)))

    @outside_graphs
    def public_outputs(self, x: Any) -> Tensor:
        """Return the output [B, ...] of a member with fresh weights: public, also if it raises."""
        self._require_whole()
        require_plain_inputs(x)
        with self.members_lock:
            pattern = self._public_twin().answer(x)
            size = int(pattern.shape[1]) if pattern.ndim > 1 else 1
            self.num_outputs = self.num_outputs or size
        return pattern

    def output_chunks(self, x: Any) -> Iterator[Tensor]:
        """Yield raw outputs [m, B, ...] of a few members at a time, in eval mode: private."""
        return self.member_chunks(x, self.public_outputs(x))

    @outside_graphs
    def member_chunks(self, x: Any, pattern: Tensor) -> Iterator[Tensor]:
        """Return raw outputs like the twin's, ``pattern``, a few members at a time.

        A member that fails gives NaN. A part of them may be left unread.
        """
        with self.members_lock:
            backend, twin = self._inference_backend(x), self._public_twin()
        return output_chunks(
            self.members, x, backend, self.chunk_size, pattern, twin.written, draws=twin.draws
        )

    def votes_module(self) -> nn.Module:
        """Return a copy that maps inputs to the members' raw vote counts [B, C].

        A curator may export or compile it. It adds no noise and charges
        nothing: the counts are as private as the records, and so is the copy, which holds the
        members' weights.
        """
        self._require_whole()
        return VoteCounter(deep_copied(self.members, {})).eval()

    def verify_isolation(
        self,
        datamodule: Any,
        *,
        index: int = 0,
        replacement: Any = None,
        trainer_options: dict[str, Any] | None = None,
    ) -> Isolation:
        """Test the training loop: one record, replaced as it is served, changes one member.

        Two copies are trained for a few steps, one with a record replaced; all other members must
        be equal bit for bit: parameters, buffers and optimizer state. What was made from all the
        records before, as class weights or a normalisation, and the Trainer's callbacks, unless
        they are among the options, are not seen: ``prediction.verify_isolation(build, records)``
        makes everything anew and tests that too.

        Args:
            datamodule: The ``PartitionedDataModule``.
            index: The record that is replaced.
            replacement: By what; the default changes its input.
            trainer_options: More arguments for the Trainer.

        Raises:
            IsolationError: If any other number of members changed.
        """
        options = trainer_options or {}
        return verified_isolation(
            self, datamodule, self.trainer_class, options, index=index, replacement=replacement
        )

    # ---- hooks of Lightning

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Raise: raw outputs are private."""
        raise _private_outputs()

    def predict_step(self, *args: Any, **kwargs: Any) -> Any:
        """Raise: raw outputs are private."""
        raise _private_outputs()

    def setup(self, stage: str) -> None:
        """Check the Trainer before anything runs."""
        if stage != "fit":
            return
        self._require_whole()
        require_separate_members(self.trainer)
        require_parts(self.trainer.datamodule, self.partition)
        self._probe = None

    def configure_optimizers(self) -> Any:
        """Return the optimizer, and the scheduler if there is one."""
        require_apart(self._optimizer_factory, self.members.parameters())
        optimizer = build_optimizer(self._optimizer_factory, self.members.parameters())
        if self._scheduler_factory is None:
            return optimizer
        scheduler = require_scheduler(self._scheduler_factory(optimizer))
        return {"optimizer": optimizer, "lr_scheduler": scheduler}

    def look_at_batch(self, pair: tuple[Any, Any], num_members: int) -> None:
        """Choose the backend at the first batch, by its shape; check the labels of every batch."""
        if self._probe is None:
            self._probe = self._probed(pair, num_members)
        if self._probe.labels is not None:
            require_labels(pair[1], self._probe.labels, self._probe.ignores)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Return the sum of the members' losses, so that each gets its own gradient."""
        if not isinstance(batch, PartitionedBatch) or self.backend_used is None:
            raise other_batches()
        steps = Steps(
            template=self.members,
            loss=self.loss,
            backend=self.backend_used,
            chunk_size=self.chunk_size,
            first=self._first,
        )
        key = (self.seed, "dropout", self.current_epoch, batch_idx)
        losses = self._quietly(lambda: steps.losses(batch.input, batch.target, *key))
        if self.log_train_loss:
            self.log("train_loss", losses.detach().mean(), sync_dist=True, batch_size=1)
        return losses.sum()

    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        """Compute the gradients; an error in a layer's own backward tells nothing either."""
        self._quietly(lambda: loss.backward(*args, **kwargs))  # type: ignore[no-untyped-call]

    def configure_gradient_clipping(
        self, optimizer: Any, gradient_clip_val: Any = None, gradient_clip_algorithm: Any = None
    ) -> None:
        """Clip each member by its own norm; by value, as the Trainer says."""
        if self.clip_norm is not None:
            clip_member_norms(self.members.parameters(), self.clip_norm)
        if gradient_clip_val:
            torch.nn.utils.clip_grad_value_(self.members.parameters(), gradient_clip_val)

    def own_members(self, members: range, *, whole: bool) -> None:
        """Set which members the tensors hold, after a strategy has cut or joined them."""
        self._first = members.start
        self._partial = not whole

    def _twin(self) -> Prober:
        # Fresh members, whose failures are public.
        return Prober(self._model_fn, self.members, self.seed)

    def _public_twin(self) -> Prober:
        """Return the twin that is asked before each batch of queries, made once."""
        if self._answering is None or not self._answering.is_like(self.members):
            # Not in Trainer.predict's inference mode, in which tensors stay read-only; one thread
            # at a time, because making models borrows the global generators.
            with torch.inference_mode(False), lending:
                self._answering = self._twin()
        self._answering.require_known_layers(self.members)
        return self._answering

    def __getstate__(self) -> dict[str, Any]:
        state = cast(dict[str, Any], super().__getstate__())  # type: ignore[no-untyped-call]
        return without_lock({name: state[name] for name in state if name != "_answering"})

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        new = memo[id(self)] = object.__new__(type(self))
        memo[id(self.members)] = deep_copied(self.members, memo)
        new.__setstate__(copy.deepcopy(self.__getstate__(), memo))  # type: ignore[no-untyped-call]
        return new

    def _require_whole(self) -> None:
        if self._partial:
            raise HoldoutError(
                "Expected all members, but this process holds only its own: the fit has not ended, "
                "or failed. Load a checkpoint."
            )

    def _probed(self, pair: tuple[Any, Any], num_members: int) -> Probe:
        size = len(tree_leaves(pair[0])[0]) // num_members
        inputs, targets = (tree_map(lambda leaf: leaf[:size], side) for side in pair)
        with self.trainer.precision_plugin.forward_context():
            probe = self._twin().training((inputs, targets), self.loss, self.backend)
        self.backend_used = probe.backend
        require_outputs(self.num_outputs, probe.num_outputs)
        self.num_outputs = self.num_outputs or probe.num_outputs
        return probe

    def _inference_backend(self, x: Any) -> Backend:
        if self.backend != "auto":
            return self.backend
        if convolves_much(self.members, x, training=False):
            return "loop"
        device = next(self.members.parameters()).device.type
        if device not in self._inference:
            self._inference[device] = self._public_twin().inference_backend(x)
        return self._inference[device]

    def _quietly(self, action: Callable[[], _Result]) -> _Result:
        """Run code that sees private values; its errors keep their type only, and no frames."""
        return without_trace(lambda: errors_by_type(action, self._withheld))

    def _withheld(self, kind: str) -> InvalidArgumentError:
        known = self._probe.failure if self._probe is not None else ""
        hint = f" On zeros of the same shape they raised {known}." if known else ""
        other = ' Or pass backend="loop".' if self.backend_used == "vmap" else ""
        return InvalidArgumentError(
            f"Expected the model and the loss to accept every training batch, but they raised "
            f"{kind}. Its message is withheld, because it may quote training records.{hint} Try "
            f"them on public records.{other}"
        )


def _private_outputs() -> InvalidArgumentError:
    return InvalidArgumentError(
        "Expected a private prediction, but an ensemble's own outputs are raw and private. Wrap it "
        "in a PrivatePredictor; a curator who may see them calls member_outputs(x)."
    )
