"""Records and queries of a stable model, and what a predictor asks of it."""

import math

import pytest
import torch
from torch.utils.data import TensorDataset
from torch_holdout.errors import HoldoutMismatchError, InvalidArgumentError
from torch_holdout.prediction.stable.model import StableModel, cut_features, fit_stable_model

from support.builders.stable import problem_of, records

NAN = float("nan")


@pytest.mark.parametrize("value", [NAN, math.inf, -math.inf, 1e200])
def test_a_record_without_a_norm_is_a_record_of_zeros(value):
    problem = problem_of()
    x, y = records(problem)
    x[5, 2] = value
    zeroed = x.clone()
    zeroed[5] = 0
    found, expected = (fit_stable_model((d, y), problem) for d in (x, zeroed))
    assert torch.equal(found.weights, expected.weights)
    assert found(x)[5] == 0


def test_a_target_that_is_no_number_is_a_record_of_zeros():
    problem = problem_of("huber")
    x, y = records(problem)
    y[5] = NAN
    zeroed = x.clone()
    zeroed[5] = 0
    found = fit_stable_model((x, y), problem)
    assert torch.equal(found.weights, fit_stable_model((zeroed, y.nan_to_num()), problem).weights)


def test_features_are_cut_in_training_and_in_prediction():
    problem = problem_of(feature_bound=0.5)
    x, y = records(problem, spread=10.0)
    found, same = (fit_stable_model((d, y), problem) for d in (x, 7 * x))
    torch.testing.assert_close(found.weights, same.weights, atol=1e-6, rtol=0)
    torch.testing.assert_close(found(x), found(3 * x))
    assert cut_features(x, 0.5).norm(dim=1).max() <= 0.5 * (1 + 1e-12)


def test_datasets_images_and_types_of_numbers():
    problem = problem_of()
    x, y = (t.clone() for t in records(problem, num_features=6))
    x = x.float()
    expected = fit_stable_model((x, y), problem).weights
    for data in (
        TensorDataset(x, y),
        (x.view(-1, 2, 3), y.bool()),
        (x.double(), y[:, None].to(torch.uint8)),
        [(row.numpy(), int(label)) for row, label in zip(x, y, strict=True)],
    ):
        assert torch.equal(fit_stable_model(data, problem).weights, expected)


@pytest.mark.parametrize("bad", [-1, 2, 123456])
def test_a_label_outside_the_classes_is_not_quoted(bad):
    problem = problem_of()
    x, y = records(problem)
    y[17] = bad
    sentence = (
        "Expected every label to be from 0 to 1, but at least one is not. Number the classes "
        "from 0."
    )
    with pytest.raises(InvalidArgumentError) as caught:
        fit_stable_model((x, y), problem)
    assert str(caught.value) == sentence


def test_bad_records_are_refused():
    problem = problem_of()
    x, y = records(problem)
    for data in (
        (x[:-1], y[:-1]),
        (x, y[:-1]),
        (torch.tensor(1.0), y),
        TensorDataset(x[:3], y[:3]),
    ):
        with pytest.raises(InvalidArgumentError, match="Expected 60 records"):
            fit_stable_model(data, problem)
    with pytest.raises(InvalidArgumentError, match="whole numbers"):
        fit_stable_model((x, y.float()), problem)
    with pytest.raises(InvalidArgumentError, match="real features"):
        fit_stable_model((x[:, 0], y), problem)
    with pytest.raises(InvalidArgumentError, match="type Tensor"):
        fit_stable_model(([1.0], y), problem)


def test_the_model_offers_what_a_predictor_asks():
    problem = problem_of("softmax")
    x, y = records(problem)
    model = fit_stable_model((x, y), problem)
    (scores,) = model.output_chunks(x.float())
    assert scores.shape == (1, 60, 3)
    assert scores.dtype == torch.float64
    assert not scores.requires_grad
    assert (model.num_parts, model.num_outputs, model.training) == (1, 3, False)
    assert model.neighbours.identity() == {
        "relation": "replace-one", "unit": "record", "members_changed": 1,
    }  # fmt: skip
    assert model.identity() == {
        "kind": "stable-model", "size": 60, "regularisation": 0.05, "loss": "softmax",
        "num_outputs": 3, "feature_bound": 1.0, "gradient_tolerance": problem.tolerance,
    }  # fmt: skip
    with pytest.raises(InvalidArgumentError, match="queries of 4 features"):
        model(x[:, :3])


def test_weights_are_kept_exactly_and_only_for_their_problem():
    problem = problem_of()
    x, y = records(problem)
    model = fit_stable_model((x, y), problem)
    copy = StableModel(problem, 4)
    with pytest.raises(InvalidArgumentError, match="not certified"):
        copy(x)
    copy.load_state_dict(model.state_dict())
    assert torch.equal(copy.half()(x), model(x))
    assert copy.weights.dtype == torch.float64
    other = StableModel(problem_of(regularisation=0.5), 4)
    with pytest.raises(HoldoutMismatchError, match="Build the model with the problem"):
        other.load_state_dict(model.state_dict())
    with pytest.raises(InvalidArgumentError, match="not certified"):
        other(x)
    assert "weights" not in repr(model)
