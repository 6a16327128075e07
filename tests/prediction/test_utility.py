"""What private answers are worth, on data that ships with packages; seeds are fixed.

The bounds are those that the library promises to keep; each measured value is a few points above.
"""

import pytest
from torch_holdout.prediction import Partition, SoftMajority

from experiments import private_prediction as study

pytestmark = pytest.mark.slow


def answers(ensemble, task, epsilon, queries):
    mechanism = SoftMajority.for_budget(
        epsilon=epsilon, delta=1e-5, queries=queries, num_parts=ensemble.num_parts,
        num_classes=task.classes,
    )  # fmt: skip
    return study.answer_accuracy(ensemble, mechanism, task)


def test_digits_with_a_hundred_parts():
    task = study.digits()
    ensemble = study.trained(task, Partition(num_parts=100, key="index", seed=7))
    assert study.majority_accuracy(ensemble, task) >= 0.83
    assert study.answer_accuracy(ensemble, SoftMajority(eta=0.1), task) >= 0.77  # epsilon .2 each
    assert answers(ensemble, task, 8.0, 100) >= 0.81


def test_digits_with_fifty_parts_and_exact_accounting():
    task = study.digits()
    ensemble = study.trained(task, Partition(num_parts=50, key="index", seed=7))
    assert answers(ensemble, task, 2.0, 100) >= 0.46
    rough = SoftMajority(eta=0.0465)  # what rho = eta^2 / 2 would allow
    assert study.answer_accuracy(ensemble, rough, task) < 0.40


def test_a_table_of_two_classes():
    task = study.table()
    ensemble = study.trained(task, Partition(num_parts=100, key="index", seed=7), steps=300)
    assert study.answer_accuracy(ensemble, SoftMajority(eta=0.05), task) >= 0.83  # epsilon .1 each
    assert answers(ensemble, task, 2.0, 100) >= 0.825
    assert answers(ensemble, task, 8.0, 1000) >= 0.83
