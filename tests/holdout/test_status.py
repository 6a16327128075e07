"""What is said of an account: its status and its certificate."""

import pytest
import torch_holdout as th
from torch_holdout._noise.gaussian import gaussian_error
from torch_holdout.accounting.compose import sampling_delta
from torch_holdout.errors import InvalidArgumentError

from support.builders.holdouts import ask, make_holdout

LAST = th.Thresholdout(threshold=0.05, sigma=0.0, guess="last")


class TestStatusAndCertificate:
    def test_texts_show_both_units(self):
        statistics = {"val_loss": th.BoundedMean(0.0, 5.0)}
        status = make_holdout(statistics=statistics).status()
        assert "0.25 (0.05 normalised)" in str(status)
        assert "5 of 5 releases left" in str(status)

    def test_any_noise_gives_a_status(self):
        for sigma in (1e-4, 1e-3, 1.0):
            mechanism = th.Thresholdout(threshold=0.1, sigma=sigma, guess="last")
            status = make_holdout(size=10, mechanism=mechanism, delta=1e-6).status()
            assert 0 < status.epsilon <= 2 * 5 / (10 * sigma) * (1 + 1e-9)

    def test_sampling_is_stated_for_both_kinds_of_noise(self):
        """Gaussian draws are not exact either. Without a delta no epsilon is finite."""
        rules = th.LaplaceMechanism(epsilon=0.5), th.GaussianMechanism(sigma=0.05)
        for rule in rules:
            holdout = make_holdout(mechanism=rule, delta=1e-6)
            assert holdout.status().sampler_error == 0.0
            ask(holdout, 25, "a")
            once = holdout.status()
            ask(holdout, 25, "b")
            assert 0 < once.sampler_error < 1e-60
            assert holdout.status().sampler_error == pytest.approx(2 * once.sampler_error)
        levels = 0.05 * 50 * 2**16
        expected = sampling_delta(once.epsilon, gaussian_error(levels))
        assert once.sampler_error == pytest.approx(expected)
        pure = make_holdout(mechanism=rules[1])
        ask(pure, 25, "a")
        assert pure.status().sampler_error == pytest.approx(gaussian_error(levels))

    def test_numbers_from_numpy_are_numbers(self):
        import numpy as np

        mechanism = th.Thresholdout(threshold=np.float32(0.5), sigma=np.float64(0.1), guess="last")
        holdout = make_holdout(size=np.int64(50), budget=np.int32(5), mechanism=mechanism)
        assert ask(holdout, 25, "a").kind == "release"

    def test_the_secret_threshold_is_not_logged(self, caplog):
        import logging

        mechanism = th.Thresholdout(threshold=0.9, sigma=0.01, guess="last")
        holdout = make_holdout(mechanism=mechanism)
        with caplog.at_level(logging.DEBUG):
            logging.getLogger("sqlalchemy").setLevel(logging.DEBUG)
            logging.getLogger("sqlalchemy.engine").setLevel(logging.DEBUG)
            try:
                for query in "abc":
                    ask(holdout, 25, query)
            finally:
                logging.getLogger("sqlalchemy").setLevel(logging.NOTSET)
                logging.getLogger("sqlalchemy.engine").setLevel(logging.NOTSET)
        with holdout._ledger.account(holdout._attached()) as account:
            assert str(account.threshold(50)) not in caplog.text

    def test_seeded_is_marked_everywhere(self):
        holdout = make_holdout(seed=1)
        ask(holdout, 25, "a")
        assert holdout.status().seeded
        assert "SEEDED" in str(holdout.status())
        assert holdout._ledger.summary(holdout._attached()).registration["seeded"]

    def test_certificate_grows_with_releases_and_says_when_it_is_empty(self):
        holdout = make_holdout(size=5000, mechanism=LAST, budget=200)
        first = holdout.certificate().tolerance
        for index in range(20):
            ask(holdout, (index % 2) * 4000, str(index))
        later = holdout.certificate()
        assert first < later.tolerance < 1
        assert later.guess_tolerance > later.tolerance
        assert "transcript counting" in str(later)
        tiny = make_holdout(size=2).certificate()
        assert tiny.vacuous
        assert "larger holdout" in str(tiny)

    @pytest.mark.parametrize("failure", [0.0, 1.0, -1, float("nan")])
    def test_bad_failure_probability(self, failure):
        with pytest.raises(InvalidArgumentError, match="failure"):
            make_holdout().certificate(failure)

    def test_user_units(self):
        holdout = make_holdout(statistics={"val_loss": th.BoundedMean(0.0, 5.0)}, size=5000)
        claim = holdout.certificate()
        assert claim.user_tolerance["val_loss"] == pytest.approx(5 * claim.tolerance)
