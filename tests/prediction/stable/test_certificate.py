"""Weights that are not, bit for bit, the certified ones answer nothing and cost nothing."""

import copy
import pickle

import pytest
import torch
from torch_holdout.errors import HoldoutMismatchError, HoldoutWarning, InvalidArgumentError
from torch_holdout.prediction import PrivacyBudget, PrivatePredictor, StableERM
from torch_holdout.prediction.stable.model import StableModel, fit_stable_model

from support.builders.stable import problem_of, records

PROBLEM = problem_of()


@pytest.fixture
def model():
    return fit_stable_model(records(PROBLEM), PROBLEM)


def predictor_of(model):
    return PrivatePredictor(
        model, StableERM(problem=PROBLEM, epsilon=0.1), budget=PrivacyBudget(epsilon=10.0),
        ledger="memory://", name="records",
    )  # fmt: skip


def refuses(model):
    """Whether a predictor refuses the model before it charges anything."""
    predictor = predictor_of(model)
    with pytest.raises(InvalidArgumentError, match="not certified") as caught:
        predictor(records(PROBLEM)[0][:3])
    assert predictor.status().queries == 0
    return "Nothing was charged" in str(caught.value) and not model.certified


def other_weights(model, scale=1.0):
    return {"weights": model.weights * 100 * scale}


def edited_in_place(model):
    with torch.no_grad():
        model.weights[0, 0] += 1


def edited_behind_its_version(model):
    model.weights.data[0, 0] = torch.nextafter(model.weights[0, 0], torch.tensor(9.0).double())


def replaced(model):
    model.weights = torch.nn.Parameter(model.weights.detach() * 2, requires_grad=False)


def in_half_precision(model):
    model.weights.data = model.weights.data.half()


def loaded_in_part(model):
    model.load_state_dict(other_weights(model), strict=False)


def assigned(model):
    model.load_state_dict({"weights": model.weights.half()}, strict=False, assign=True)


def rounded_and_back(model):
    model.weights.data = model.weights.data.float().double()


def swapped(model):
    kept = model.weights.data.clone()
    kept[0, 1] = -kept[0, 1]
    model.weights.data = kept


def written_into_their_storage(model):
    model.weights.untyped_storage()[0] ^= 1


def scaled_by_a_parametrisation(model):
    class Doubled(torch.nn.Module):
        def forward(self, weights):
            return 2 * weights

    torch.nn.utils.parametrize.register_parametrization(model, "weights", Doubled())


def of_fewer_features(model):
    model.weights.data = model.weights.data[:, :3]


def of_another_problem(model):
    model.problem = problem_of(regularisation=0.5)


CHANGES = [
    edited_in_place, edited_behind_its_version, replaced, in_half_precision, loaded_in_part,
    assigned, rounded_and_back, swapped, written_into_their_storage, of_fewer_features,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_weights_that_were_changed_answer_nothing(model, change):
    assert model.certified
    predictor = predictor_of(model)
    assert predictor(records(PROBLEM)[0][:3]).shape == (3,)
    change(model)
    with pytest.raises(InvalidArgumentError, match="not certified"):
        predictor(records(PROBLEM)[0][:3])
    assert predictor.status().queries == 3
    assert refuses(model)
    assert refuses(copy.deepcopy(model))
    assert refuses(pickle.loads(pickle.dumps(model)))
    assert not model.state_dict()["_extra_state"]["certified"]


def test_the_certificate_is_for_one_problem(model):
    of_another_problem(model)
    assert not model.certified
    with pytest.raises(InvalidArgumentError, match="not certified"):
        model(records(PROBLEM)[0])


def test_weights_behind_a_parametrisation_answer_nothing(model):
    predictor = predictor_of(model)
    scaled_by_a_parametrisation(model)
    with pytest.raises(InvalidArgumentError, match="not certified"):
        predictor(records(PROBLEM)[0][:3])
    assert predictor.status().queries == 0


def test_weights_of_another_problem_are_refused_when_they_are_loaded(model):
    for strict in (True, False):
        fresh = StableModel(problem_of(regularisation=0.5), 4)
        with pytest.raises(HoldoutMismatchError, match="the problem they were trained for"):
            fresh.load_state_dict(model.state_dict(), strict=strict)
        assert not fresh.certified
    other = fit_stable_model(records(PROBLEM), problem_of(regularisation=0.5))
    with pytest.raises(HoldoutMismatchError, match="would not protect"):
        predictor_of(other)


def test_a_model_that_gets_another_problem_answers_nothing(model):
    """Certified for it, its scores move by more than the predictor's noise covers."""
    weaker = problem_of(regularisation=0.001)
    other = fit_stable_model(records(weaker), weaker)
    predictor = predictor_of(model)
    model.problem = weaker
    model.load_state_dict(other.state_dict())
    assert model.certified
    with pytest.raises(HoldoutMismatchError, match="would not protect"):
        predictor(records(PROBLEM)[0][:3])
    assert predictor.status().queries == 0


def test_a_certificate_does_not_move_to_other_weights(model):
    """Also not to those of a neighbouring data set, certified themselves."""
    x, y = records(PROBLEM)
    other = fit_stable_model((torch.cat([x[:1] + 1, x[1:]]), y), PROBLEM)
    mixed = {**model.state_dict(), "weights": other.weights}
    fresh = StableModel(PROBLEM, 4)
    with pytest.raises(HoldoutMismatchError, match="not certified and answers nothing"):
        fresh.load_state_dict(mixed)
    assert refuses(fresh)
    fresh.load_state_dict(other.state_dict())
    assert predictor_of(fresh)(x[:3]).shape == (3,)


def test_hooks_do_not_change_the_certified_scores(model):
    x = records(PROBLEM)[0]
    plain = torch.cat(list(model.output_chunks(x)))
    model.register_forward_hook(lambda module, inputs, scores: 1000 * scores)
    model.register_forward_pre_hook(lambda module, inputs: (1000 * inputs[0],))
    assert torch.equal(torch.cat(list(model.output_chunks(x))), plain)


@pytest.mark.parametrize(
    "way",
    [copy.deepcopy, copy.copy, lambda model: pickle.loads(pickle.dumps(model))],
    ids=["deep", "shallow", "pickle"],
)
def test_copies_are_certified_and_noticed_when_they_are_changed(model, way):
    copied = way(model)
    assert predictor_of(copied)(records(PROBLEM)[0][:3]).shape == (3,)
    edited_in_place(copied)
    assert refuses(copied)


def test_changed_back_it_is_certified_again(model):
    kept = copy.deepcopy(model.state_dict())
    edited_in_place(model)
    assert not model.certified
    model.load_state_dict(kept)
    assert model.certified


@pytest.mark.parametrize(
    "change",
    [
        lambda state: {**state, "weights": state["weights"].half()},
        lambda state: {**state, "weights": state["weights"].float()},
        lambda state: {**state, "weights": 2 * state["weights"]},
        lambda state: {"_extra_state": state["_extra_state"]},
    ],
    ids=["half", "single", "doubled", "without weights"],
)
@pytest.mark.parametrize("earlier", [False, True], ids=["now", "version 0.1.0"])
def test_a_state_with_other_weights_is_refused_when_it_is_loaded(model, change, earlier):
    state = change(model.state_dict())
    if earlier:
        state["_extra_state"] = {"problem": PROBLEM.identity(), "certified": True}
        if "weights" in state and state["weights"].dtype == torch.float64:
            return  # 0.1.0 kept nothing that would tell
    fresh = StableModel(PROBLEM, 4)
    with pytest.raises(HoldoutMismatchError, match="not certified and answers nothing") as caught:
        fresh.load_state_dict(state, strict=False)
    assert model._certificate not in str(caught.value)
    assert refuses(fresh)


def test_a_state_of_version_0_1_0_is_loaded_and_says_what_is_taken_on_trust(model):
    state = model.state_dict()
    state["_extra_state"] = {"problem": PROBLEM.identity(), "certified": True}
    fresh = StableModel(PROBLEM, 4)
    with pytest.warns(HoldoutWarning, match="taken on trust"):
        fresh.load_state_dict(state)
    assert fresh.certified
    edited_in_place(fresh)
    assert refuses(fresh)
    with pytest.raises(HoldoutMismatchError, match="none"):
        StableModel(PROBLEM, 4).set_extra_state(state["_extra_state"])
    untrained = StableModel(PROBLEM, 4)
    untrained.set_extra_state({"problem": PROBLEM.identity(), "certified": False})
    assert refuses(untrained)


@pytest.mark.parametrize("certified", [True, False])
def test_a_pickle_of_version_0_1_0(model, certified):
    old = pickle.loads(pickle.dumps(model))
    old.__dict__ |= {"_certified": certified}
    del old.__dict__["_certificate"], old.__dict__["_loaded"]
    if certified:
        with pytest.warns(HoldoutWarning, match="taken on trust"):
            again = pickle.loads(pickle.dumps(old))
        assert predictor_of(again)(records(PROBLEM)[0][:3]).shape == (3,)
    else:
        assert refuses(pickle.loads(pickle.dumps(old)))


def test_moves_keep_the_certificate_and_nothing_shows_it(model):
    for moved in (
        model.half(),
        model.float(),
        model.to("cpu"),
        model.train(),
        model.requires_grad_(),
    ):
        assert moved.certified
    shown = f"{model!r} {model.identity()} {predictor_of(model)!r}"
    assert model._certificate not in shown
