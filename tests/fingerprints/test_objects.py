"""A model's digest: the same content is the same name, in every process."""

import copy
import functools
import pickle
import random
import subprocess
import sys
import threading
from collections import OrderedDict, defaultdict

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
import torch_holdout as th
from torch import nn
from torch_holdout.errors import InvalidArgumentError

from support.machines.site import ROOT

lightgbm = pytest.importorskip("lightgbm")
xgboost = pytest.importorskip("xgboost")
compose = pytest.importorskip("sklearn.compose")
ensemble = pytest.importorskip("sklearn.ensemble")
linear_model = pytest.importorskip("sklearn.linear_model")
model_selection = pytest.importorskip("sklearn.model_selection")
neighbors = pytest.importorskip("sklearn.neighbors")
neural_network = pytest.importorskip("sklearn.neural_network")
pipeline = pytest.importorskip("sklearn.pipeline")
preprocessing = pytest.importorskip("sklearn.preprocessing")
svm = pytest.importorskip("sklearn.svm")
tree = pytest.importorskip("sklearn.tree")


def rows(seed):
    generator = np.random.default_rng(seed)
    features = generator.normal(size=(80, 4))
    return features, (features[:, 0] + 0.3 * generator.normal(size=80) > 0).astype(int)


def column_mix():
    scaled = ("scaled", preprocessing.StandardScaler(), [0, 1])
    return compose.ColumnTransformer([scaled], remainder="passthrough")


ESTIMATORS = {
    "linear": lambda: linear_model.LogisticRegression(),
    "gradient descent": lambda: linear_model.SGDClassifier(random_state=0),
    "tree": lambda: tree.DecisionTreeClassifier(random_state=0),
    "forest": lambda: ensemble.RandomForestClassifier(5, random_state=0),
    "boosting": lambda: ensemble.HistGradientBoostingClassifier(max_iter=5, random_state=0),
    "neighbours": lambda: neighbors.KNeighborsClassifier(algorithm="kd_tree"),
    "balls": lambda: neighbors.KNeighborsClassifier(algorithm="ball_tree"),
    "vectors": lambda: svm.SVC(random_state=0),
    "network": lambda: neural_network.MLPClassifier((3,), max_iter=800, tol=0.1, random_state=0),
    "pipeline": lambda: pipeline.make_pipeline(
        column_mix(), preprocessing.FunctionTransformer(np.abs), linear_model.RidgeClassifier()
    ),
    "lightgbm": lambda: lightgbm.LGBMClassifier(
        n_estimators=3, random_state=0, verbose=-1, n_jobs=1
    ),
    "xgboost": lambda: xgboost.XGBClassifier(n_estimators=3, random_state=0, n_jobs=1),
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_same_fit_has_the_same_digest_and_another_fit_another(name):
    make = ESTIMATORS[name]
    fitted = make().fit(*rows(0))
    named = th.digest(fitted)
    assert th.digest(make().fit(*rows(0))) == named
    assert th.digest(pickle.loads(pickle.dumps(fitted))) == named
    assert th.digest(pickle.loads(pickle.dumps(fitted, protocol=2))) == named
    assert th.digest(copy.deepcopy(fitted)) == named
    fitted.predict(rows(0)[0])
    assert th.digest(fitted) == named
    assert th.digest(make().fit(*rows(1))) != named
    assert th.digest(make()) != named


def boosters(seed=0, rounds=4):
    features, labels = rows(seed)
    settings = {"objective": "binary", "verbose": -1, "num_threads": 1, "seed": 1}
    yield lightgbm.train(settings, lightgbm.Dataset(features, labels), rounds)
    settings = {"objective": "binary:logistic", "nthread": 1, "seed": 1}
    yield xgboost.train(settings, xgboost.DMatrix(features, labels), rounds)


def test_boosters_are_named_by_what_they_save(tmp_path):
    for first, again, longer, other in zip(
        boosters(), boosters(), boosters(rounds=5), boosters(1), strict=True
    ):
        named = th.digest(first)
        assert th.digest(again) == named
        assert th.digest(pickle.loads(pickle.dumps(first))) == named
        assert th.digest(copy.deepcopy(first)) == named
        assert len({named, th.digest(longer), th.digest(other)}) == 3
        path = str(tmp_path / type(first).__module__.split(".")[0]) + ".ubj"
        first.save_model(path)
        if isinstance(first, lightgbm.Booster):
            assert th.digest(lightgbm.Booster(model_file=path)) == named
        else:
            assert th.digest(xgboost.Booster(model_file=path)) == named


def test_where_a_booster_stops_counts():
    first = next(boosters())
    named = th.digest(first)
    first.best_iteration = 2
    assert th.digest(first) != named


PROGRAM = """
import sys
sys.path[:0] = {path!r}
import numpy as np, torch_holdout as th
from fingerprints.test_objects import ESTIMATORS, rows
model = ESTIMATORS[{name!r}]().fit(*rows(0))
print(th.digest([model, {{"a", "b", "c"}}, {{"x": 1, "y": np.float32(2)}}]))
"""


@pytest.mark.integration
def test_processes_agree_whatever_their_hash_seed():
    code = PROGRAM.format(path=[str(ROOT), str(ROOT / "tests")], name="forest")
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env={"PYTHONHASHSEED": "1", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    forest = ESTIMATORS["forest"]().fit(*rows(0))
    mixed = [forest, {"c", "b", "a"}, {"y": np.float32(2), "x": 1}]
    assert ran.stdout == th.digest(mixed) + "\n"


class Model:
    def __init__(self, **parts):
        self.__dict__.update(parts)


def scale(values, by=2.0):
    return values * by


SAME = {
    "order of keys": ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    "lists and tuples": ([1, (2, 3)], (1, [2, 3])),
    "order of elements": ({"x", "y", "z"}, {"z", "y", "x"}),
    "layout": (np.arange(6.0).reshape(2, 3), np.asfortranarray(np.arange(6.0).reshape(2, 3))),
    "strides": (np.arange(10)[::2], np.arange(10)[::2].copy()),
    "byte order": (np.arange(3, dtype=">i4"), np.arange(3, dtype="<i4")),
    "attributes": (Model(a=[1], b=np.ones(2)), Model(b=np.ones(2), a=[1])),
    "sharing": ([[1, 2]] * 2, [[1, 2], [1, 2]]),
    "sparse": (scipy.sparse.eye(3, format="csr"), scipy.sparse.eye(3, format="csr")),
    "tensors": (torch.ones(3), torch.ones(6)[::2]),
    "partial": (functools.partial(scale, by=3), functools.partial(scale, by=3)),
    "generators": (np.random.default_rng(1), np.random.default_rng(1)),
    "states": (random.Random(1), random.Random(1)),
    "frames": (pd.DataFrame({"a": [1, 2]}), pd.DataFrame({"a": [1, 2]})),
    "text": ("model", "".join(["mo", "del"])),
    "bytes": (b"model", bytearray(b"model")),
    "masked": (
        np.ma.array([1, 2], mask=[False, True]), np.ma.array([1, 9], mask=[False, True]),
    ),
}  # fmt: skip

OTHER = {
    "values": (np.zeros(3), np.array([0.0, 0.0, 5e-324])),
    "types": (np.zeros(3), np.zeros(3, dtype=np.float32)),
    "kinds of numbers": (1, 1.0),
    "truth": (1, True),
    "shapes": (np.zeros((2, 3)), np.zeros((3, 2))),
    "order": ([1, 2], [2, 1]),
    "nesting": ([[1], [2]], [[1, 2], []]),
    "keys": ({"a": 1}, {"b": 1}),
    "text and bytes": ("model", b"model"),
    "classes": (Model(), OrderedDict()),
    "attributes": (Model(a=1), Model(a=2)),
    "code": (lambda x: x + 1, lambda x: x + 2),
    "bound values": (functools.partial(scale, by=3), functools.partial(scale, by=4)),
    "masks": (np.ma.array([1, 2], mask=[0, 1]), np.ma.array([1, 2], mask=[1, 0])),
    "factories": (defaultdict(list), defaultdict(set)),
    "fields": (np.zeros(2, dtype=[("a", "i4")]), np.zeros(2, dtype=[("b", "i4")])),
    "modules": (nn.Linear(2, 2), nn.Linear(2, 2)),
    "sparse": (scipy.sparse.eye(3, format="csr"), scipy.sparse.eye(3, format="csc")),
    "functions": (np.log, np.exp),
}  # fmt: skip


@pytest.mark.parametrize("what", SAME)
def test_the_same_content_is_the_same_name(what):
    first, second = SAME[what]
    assert th.digest(first) == th.digest(second)
    assert th.digest([first]) != th.digest(first)


@pytest.mark.parametrize("what", OTHER)
def test_other_content_is_another_name(what):
    first, second = OTHER[what]
    assert th.digest(first) != th.digest(second)


def test_memory_between_the_fields_of_a_record_is_not_read():
    kind = np.dtype(
        {"names": ["a", "b"], "formats": ["i1", "f8"], "offsets": [0, 8], "itemsize": 16}
    )
    named = set()
    for filler in (0, 255):
        raw = np.full(3 * 16, filler, dtype=np.uint8)
        records = raw.view(kind)
        records["a"], records["b"] = 1, 2.0
        named.add(th.digest(records))
    assert len(named) == 1
    assert len({raw.tobytes(), np.zeros(3, kind).tobytes()}) == 2  # the bytes do differ


def test_a_matrix_that_remembers_its_checks_keeps_its_name():
    matrix = scipy.sparse.csr_matrix(np.eye(3))
    named = th.digest(matrix)
    assert matrix.has_sorted_indices
    assert th.digest(matrix) == named


def test_parts_that_refer_to_each_other_are_named():
    def ring(value):
        one, other = Model(value=value), Model()
        one.other, other.other = other, one
        return one

    assert th.digest(ring(1)) == th.digest(ring(1)) != th.digest(ring(2))
    assert th.digest(copy.deepcopy(ring(1))) == th.digest(ring(1))
    shared = [0]
    for _ in range(60):  # 2^60 paths, 60 parts
        shared = [shared, shared]
    assert len(th.digest(shared)) == 64


def nested(depth):
    inner = []
    for _ in range(depth):
        inner = [inner]
    return inner


REFUSED = {
    "a file": functools.partial(open, __file__),
    "a lock": threading.Lock,
    "a generator": lambda: (each for each in [1]),
    "a module of Python": lambda: sys,
    "inside a model": lambda: Model(parts=[{"lock": threading.Lock()}]),
    "too deep": lambda: nested(10_000),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_has_no_content_to_name_is_refused(what):
    thing = REFUSED[what]()
    with pytest.raises(InvalidArgumentError, match=r"th\.digest\(data\)") as caught:
        th.digest(thing)
    assert caught.value.__context__ is None
    if what == "a file":
        thing.close()


def test_an_error_of_a_models_own_keeps_its_type_only():
    class Telling:
        def __getstate__(self):
            raise KeyError("7310")

    with pytest.raises(InvalidArgumentError, match="KeyError") as caught:
        th.digest(Telling())
    assert "7310" not in str(caught.value)


def test_times_make_another_name_so_a_search_is_named_by_its_best():
    def search():
        depth = tree.DecisionTreeClassifier(random_state=0)
        return model_selection.GridSearchCV(depth, {"max_depth": [2]}).fit(*rows(0))

    first, second = search(), search()
    assert th.digest(first.best_estimator_) == th.digest(second.best_estimator_)
    assert th.digest(first) != th.digest(second)
