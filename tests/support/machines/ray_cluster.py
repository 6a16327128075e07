"""A Ray cluster of this machine for the tests of one file, and sweeps on it."""

import gc
import os
import sys
import warnings
from contextlib import contextmanager

import pytest
import ray
from ray import tune


@contextmanager
def ray_cluster():
    """Start two workers, which import what the tests import; nothing of it is left."""
    changes = {
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "RAY_USAGE_STATS_ENABLED": "0",
        "OMP_NUM_THREADS": "1",
    }
    with pytest.MonkeyPatch.context() as environment:
        for name, value in changes.items():
            environment.setenv(name, value)
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
        try:
            yield
        finally:
            ray.shutdown()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Tune leaves files of its loggers open
        gc.collect()


def sweep(trainable, folder, space, *, failures=0, callbacks=(), **config):
    """Run a sweep; ``config`` is TuneConfig's."""
    tuner = tune.Tuner(
        trainable,
        param_space=space,
        tune_config=tune.TuneConfig(**config),
        run_config=tune.RunConfig(
            storage_path=str(folder / "ray"),
            name="sweep",
            verbose=0,
            failure_config=tune.FailureConfig(max_failures=failures),
            callbacks=list(callbacks),
        ),
    )
    return tuner.fit()
