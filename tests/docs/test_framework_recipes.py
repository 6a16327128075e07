"""The boosters' recipes leave nothing raw behind; the native way, which they replace, does."""

import pickle

import pytest

from support.machines.site import ROOT, blocks
from support.oracles.leaks import raw_hits

PAGE = (ROOT / "docs" / "how-to" / "any-framework.md").read_text()


@pytest.fixture
def page(tmp_path, monkeypatch):
    """The names of the page's first block; ``raw`` collects the mean of each evaluation."""
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(blocks(PAGE, "python")[0], names)
    names["raw"], loss = [], names["log_loss"]

    def noted(chance):
        values = loss(chance)
        names["raw"] += [values.mean(), values.sum()]
        return values

    names["log_loss"] = noted
    return names


def recipe(words):
    """The page's block with some words, without its closing, which shows everything."""
    (found,) = [block for block in blocks(PAGE, "python") if words in block]
    return found.replace("print(holdout.close())", "")


def left_behind(booster):
    """What a booster keeps, saves and tells of its training."""
    kept = [vars(booster).get(name) for name in ("best_score", "params")]
    if hasattr(booster, "model_to_string"):
        return [pickle.dumps(booster), booster.model_to_string(), *map(str, kept)]
    return [bytes(booster.save_raw("json")), booster.save_config(), str(booster.attributes())]


@pytest.mark.parametrize(
    ("package", "words"), [("lightgbm", "EarlyStopException"), ("xgboost", "SealedStopping")]
)
def test_a_sealed_recipe_leaves_nothing_raw(page, package, words, capfd, tmp_path):
    pytest.importorskip(package)
    exec(recipe(words), page)
    assert len(page["raw"]) == 2 * page["run"].outcome.evaluations > 10
    printed = list(capfd.readouterr())
    assert raw_hits([*left_behind(page["booster"]), *printed], page["raw"]) == []
    assert page["holdout"].close().best.value == pytest.approx(min(page["raw"][::2]), abs=1e-4)


def test_the_live_recipe_tells_what_was_answered_only(page, capfd):
    pytest.importorskip("xgboost")
    exec(recipe("SealedStopping"), page)
    page["raw"].clear()
    exec(recipe("GuardedStopping"), page)
    assert len(page["raw"]) > 10
    assert raw_hits(list(capfd.readouterr()), page["raw"]) == []
    assert page["live"].status().releases < len(page["raw"]) // 2


def test_twin_with_the_native_way_is_caught(page, capfd):
    """Both boosters, with the holdout as their own validation set."""
    lightgbm, xgboost = (pytest.importorskip(name) for name in ("lightgbm", "xgboost"))
    train, val = (page["x_train"], page["y_train"]), (page["x_val"], page["y_val"])
    rows = lightgbm.Dataset(*train)
    booster = lightgbm.train(
        {"objective": "binary", "num_threads": 1, "verbose": -1}, rows, 10,
        valid_sets=[lightgbm.Dataset(*val, reference=rows)],
        callbacks=[lightgbm.early_stopping(3, verbose=False)],
    )  # fmt: skip
    page["log_loss"](booster.predict(page["x_val"]))
    assert raw_hits(left_behind(booster), page["raw"])
    page["raw"].clear()
    other = xgboost.train(
        {"objective": "binary:logistic", "nthread": 1}, xgboost.DMatrix(*train), 5,
        evals=[(xgboost.DMatrix(*val), "val")], early_stopping_rounds=3, verbose_eval=False,
    )  # fmt: skip
    page["log_loss"](other.predict(xgboost.DMatrix(page["x_val"])))
    assert raw_hits(left_behind(other), page["raw"])
