"""What to change in a module or callback that would publish a raw value: words and diffs."""

import re
from collections.abc import Iterable, Sequence

from torch_holdout.training.first_look.marking import DataUse

_STEP = """Return per-example values instead; the guard averages, guards and logs them:
     def {hook}(self, batch, batch_idx):
         x, y = batch
-        loss = F.cross_entropy(self(x), y)
-        self.log({key}, loss)
+        return {{{key}: F.cross_entropy(self(x), y, reduction="none")}}"""
_HOOK = """Drop it here, and return its per-example values from the step (a metric such as AUROC,
which is not a mean of examples, is a `th.Blockwise` statistic):
     def {hook}(self, ...):
-        self.log({key}, ...)
     def {step}(self, batch, batch_idx):
+        return {{..., {key}: values}}  # one for each example of the batch"""

_PREDICTION = """Return per-example values from `values=` instead; HoldoutTrainer averages, guards
and logs them, and what your code keeps or logs in training goes under `if model.training:`
-    def compute_metrics(p):
-        return {{{key}: accuracy(p.predictions, p.label_ids)}}
+    def values(p):  # of one batch, tensors on the device
+        return {{{key}: p.predictions.argmax(-1) == p.label_ids}}
     HoldoutTrainer(..., values=values)"""


def diff_for(hook: str, key: str = "val_loss") -> str:
    """Return the change that guards a key which is logged in a hook.

    Example:
        >>> print(diff_for("on_validation_epoch_end", "val_auroc").splitlines()[3])
        -        self.log("val_auroc", ...)
    """
    quoted = f'"{key}"'
    if hook == "prediction_step":
        return _PREDICTION.format(key='"accuracy"')
    if hook.endswith("step"):
        return _STEP.format(hook=hook, key=quoted)
    step = "test_step" if "_test_" in hook else "validation_step"
    return _HOOK.format(hook=hook, key=quoted, step=step)


def public_advice(names: Iterable[str]) -> str:
    """Return how to declare what does not depend on the holdout; nothing for no names.

    Example:
        >>> public_advice(["lr"])
        " If 'lr' does not depend on the holdout's values, pass public=('lr',)."
    """
    quoted = [repr(name) for name in dict.fromkeys(names)]
    if not quoted:
        return ""
    does = "does" if len(quoted) == 1 else "do"
    return (
        f" If {', '.join(quoted)} {does} not depend on the holdout's values, pass "
        f"public=({', '.join(quoted)},)."
    )


def not_public(findings: Iterable[DataUse], public: Sequence[str]) -> list[DataUse]:
    """Return the findings that are not declared: an attribute that keeps, a function that reads."""
    return [
        each
        for each in findings
        if (attribute_of(each.holder) if each.holder else each.place.function) not in public
    ]


def attribute_of(holder: str) -> str:
    """Return the attribute in a holder's path.

    Example:
        >>> attribute_of("Net.losses[0]"), attribute_of("the closure of f.<locals>.g")
        ('losses', '')
    """
    attribute = re.match(r"\w+(?:[.]\w+)*[.](\w+)(?:\[|$)", holder)
    return attribute[1] if attribute else ""


def refusal(code: str, findings: Sequence[DataUse]) -> str:
    """Return the message about what a step or hook did with the holdout's batch; never a value."""
    listed = "\n".join(f"- {finding}" for finding in findings)
    harmless = [attribute_of(f.holder) for f in findings if not f.of_model]
    harmless = [attribute for attribute in harmless if attribute]
    return (
        f"Expected `{code}` to leave nothing of the holdout's batch behind but what it returns, "
        f"but in its first batch:\n{listed}\nValues are not shown here.{public_advice(harmless)} "
        f"{diff_for(code.rpartition('.')[2])}"
    )
