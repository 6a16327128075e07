"""A checkpoint knows the parts its members were trained on, key function included."""

import warnings

import pytest
import torch
from torch.utils.data import TensorDataset
from torch_holdout.errors import HoldoutWarning, InvalidArgumentError
from torch_holdout.prediction import Partition
from torch_holdout.prediction.ensemble.requirements import require_parts

from support.builders.ensembles import data, ensemble, linear, records, trainer

# Lightning's advice about workers and the like.
pytestmark = pytest.mark.filterwarnings("ignore")


def by_column(column):
    return Partition(num_parts=4, key=lambda record: int(record[0][column] * 1e6), seed=7)


def visits():
    x, y = records().tensors
    return TensorDataset(x, y)


def fitted_on(parts, **options):
    found = ensemble(linear, parts)
    source = data(visits(), parts)
    run = trainer(max_epochs=1, **options)
    run.fit(found, datamodule=source)
    return found, run


@pytest.fixture
def checkpoint(tmp_path):
    _, run = fitted_on(by_column(0))
    run.save_checkpoint(tmp_path / "members.ckpt")
    return tmp_path / "members.ckpt"


def resumed(checkpoint, parts):
    found = ensemble(linear, parts)
    trainer(max_epochs=2).fit(
        found, datamodule=data(visits(), parts), ckpt_path=str(checkpoint), weights_only=False
    )
    return found


def members_of(parts, index):
    return [k for k, part in enumerate(parts.assign(visits())) if bool((part == index).any())]


def test_a_fit_resumed_with_another_lambda_is_refused(checkpoint):
    """Records would be in two members: in the first fit by one column, then by another."""
    one, other = by_column(0), by_column(1)
    assert any(members_of(one, index) != members_of(other, index) for index in range(10))
    with pytest.raises(InvalidArgumentError, match="another key function of that name") as caught:
        resumed(checkpoint, other)
    for secret in (one.identity()["code"]["digest"], other.identity()["code"]["digest"]):
        assert secret not in str(caught.value)


def test_a_fit_resumed_with_the_same_code_goes_on(checkpoint):
    with warnings.catch_warnings():
        warnings.simplefilter("error", HoldoutWarning)
        resumed(checkpoint, by_column(0))


def test_a_checkpoint_of_version_0_1_0_is_opened_and_says_what_was_not_compared(checkpoint):
    stored = torch.load(checkpoint, weights_only=False)
    del stored["torch_holdout_ensemble"]["partition"]["code"]
    torch.save(stored, checkpoint)
    with pytest.warns(HoldoutWarning, match="by its name only"):
        resumed(checkpoint, by_column(0))
    stored["torch_holdout_ensemble"]["partition"]["seed"] = 8
    torch.save(stored, checkpoint)
    with pytest.raises(InvalidArgumentError, match="but it has another: trained on"):
        resumed(checkpoint, by_column(0))


def test_data_in_the_parts_of_another_lambda_is_refused():
    with pytest.raises(InvalidArgumentError, match="Pass both the same Partition"):
        require_parts(data(visits(), by_column(1)), by_column(0))
    require_parts(data(visits(), by_column(0)), by_column(0))


def test_models_that_share_a_layer_are_refused():
    shared = linear()
    with pytest.raises(InvalidArgumentError, match=r"two models share '0\.weight'"):
        ensemble(lambda: torch.nn.Sequential(shared))
