"""What a mechanism sees, says and charges."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch_holdout._noise.streams import SeededNoise
from torch_holdout.accounting import (
    Concentrated,
    DiscreteLaplace,
    Pure,
    SoftVote,
    queries_for,
)
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.prediction.mechanisms import (
    NO_CONSENSUS,
    ConfidentGNMax,
    GNMax,
    NoisyMean,
    PermuteAndFlip,
    PredictionMechanism,
    Setting,
    SoftMajority,
)

from support.oracles.chi_square import fits
from support.oracles.host_reads import HostReads
from support.oracles.laws import discrete_laplace
from support.oracles.prediction_laws import (
    confident,
    noisy_winner,
    permute_and_flip,
    rounded_normal,
    soft_majority,
)

NAN, INF = float("nan"), float("inf")
LABELS = [
    SoftMajority(eta=0.1),
    PermuteAndFlip(epsilon=0.2),
    GNMax(sigma=5.0),
    ConfidentGNMax(threshold=4.0, sigma_check=3.0, sigma_answer=2.0),
]
VALUES = [
    NoisyMean(low=-1.0, high=3.0, noise="laplace", epsilon=0.5),
    NoisyMean(low=-1.0, high=3.0, noise="gaussian", sigma=0.2),
    NoisyMean(low=0.0, high=1.0, noise="laplace", epsilon=0.5, simplex=True),
    NoisyMean(low=0.0, high=1.0, noise="gaussian", sigma=0.2, simplex=True),
]
ALL = LABELS + VALUES


def name(mechanism):
    kind = mechanism.identity()
    return "-".join(str(kind[key]) for key in ("kind", "noise", "simplex") if key in kind)


def width_of(mechanism):
    return 1 if mechanism in VALUES[:2] else 4


def drawn(mechanism, votes, draws, parts, seed=1):
    table = torch.tensor([votes]).expand(draws, *([-1] if isinstance(votes, list) else []))
    outputs = len(votes) if isinstance(votes, list) else 1
    setting = Setting(num_parts=parts, num_outputs=outputs)
    return mechanism.answer(table, setting, SeededNoise(seed).uniforms("law"))


class TestLaws:
    """Chi-square against exact laws: 200,000 draws, false-alarm rate 1e-6 each, fixed seeds."""

    DRAWS = 200_000
    VOTES = ([7, 2, 0, 1], [4, 3, 3, 0], [10, 0, 0, 0])

    def check(self, right, wrong, votes, law, parts=10):
        assert fits(drawn(right, votes, self.DRAWS, parts).tolist(), law)
        assert not fits(drawn(wrong, votes, self.DRAWS, parts).tolist(), law)

    @pytest.mark.parametrize("votes", VOTES)
    def test_soft_majority(self, votes):
        law = soft_majority(votes, 0.3)
        self.check(SoftMajority(eta=0.3), SoftMajority(eta=0.33), votes, law)

    @pytest.mark.parametrize("votes", VOTES)
    def test_permute_and_flip(self, votes):
        law = permute_and_flip(votes, 0.6)
        self.check(PermuteAndFlip(epsilon=0.6), PermuteAndFlip(epsilon=0.66), votes, law)

    @pytest.mark.parametrize("votes", VOTES)
    def test_gn_max(self, votes):
        self.check(GNMax(sigma=4.0), GNMax(sigma=3.6), votes, noisy_winner(votes, 4.0))

    @pytest.mark.parametrize("votes", VOTES)
    def test_confident(self, votes):
        law = confident(votes, 6.0, 5.0, 3.0)
        right = ConfidentGNMax(threshold=6.0, sigma_check=5.0, sigma_answer=3.0)
        wrong = ConfidentGNMax(threshold=6.0, sigma_check=5.0, sigma_answer=2.7)
        self.check(right, wrong, votes, law)
        quiet = ConfidentGNMax(threshold=6.0, sigma_check=4.0, sigma_answer=3.0)
        assert max(votes) == 6 or not fits(drawn(quiet, votes, self.DRAWS, 10).tolist(), law)

    @pytest.mark.parametrize("total", [0, 13, 30])
    def test_laplace_mean(self, total):
        """Three members of ten levels: the answer is a level of thirty, in units of 0 to 6."""
        law = {}
        for k, p in discrete_laplace(10 / 0.8).items():
            place = min(max(total + k, 0), 30)
            law[place] = law.get(place, 0.0) + p
        kind = {"low": 0.0, "high": 6.0, "noise": "laplace", "resolution": 10}
        for epsilon, right in ((0.8, True), (0.9, False)):
            answers = drawn(NoisyMean(**kind, epsilon=epsilon), total, self.DRAWS, 3)
            levels = (answers * 5).round()
            assert (levels / 5 - answers).abs().max() < 1e-12
            assert fits(levels.long().tolist(), law) == right

    @pytest.mark.parametrize("total", [0, 13, 30])
    def test_gaussian_mean(self, total):
        """The deviation of the mean, 0.5 of 6, is 2.5 levels of the sum."""
        law = rounded_normal(total, 2.5, 0, 30)
        kind = {"low": 0.0, "high": 6.0, "noise": "gaussian", "resolution": 10}
        for sigma, right in ((0.5, True), (0.46, False)):
            levels = (drawn(NoisyMean(**kind, sigma=sigma), total, self.DRAWS, 3) * 5).round()
            assert fits(levels.long().tolist(), law) == right

    def test_rare_classes_keep_their_probability(self):
        """2^40 times less likely than the first: the shares of 63 bits are right to 2^-20."""
        chances = SoftMajority(eta=1.0).chances(torch.tensor([[30, 2, 0]]))[0]
        exact = soft_majority([30, 2, 0], 1.0)
        shares = (chances[1:] * 2.0**63).to(torch.int64).tolist()
        for share, label in zip(shares, (1, 2), strict=True):
            assert share / 2.0**63 == pytest.approx(exact[label], rel=1e-6)

    def test_the_ends_of_the_integers(self):
        """The smallest and the largest uniform number, at certainty and at a tie."""

        class Fixed:
            def __init__(self, value):
                self.value = value

            def draw(self, shape, device="cpu"):
                return torch.full(shape, self.value, dtype=torch.int64, device=device)

        setting = Setting(num_parts=1000, num_outputs=3)
        for votes, labels in (
            ([0, 1000, 0], (1, 1)),
            ([1000, 0, 0], (0, 0)),
            ([0, 0, 1000], (2, 2)),
        ):
            for value, label in zip((0, 2**63 - 1), labels, strict=True):
                answer = SoftMajority(eta=900.0).answer(
                    torch.tensor([votes]), setting, Fixed(value)
                )
                assert answer.tolist() == [label]


class TestCharges:
    ONE = Setting(num_parts=20, num_outputs=4)
    TWO = Setting(num_parts=20, num_outputs=4, members_changed=2)

    def test_values(self):
        assert SoftMajority(eta=0.1).charge(self.ONE) == SoftVote(0.1, 20, 4)
        assert SoftMajority(eta=0.1).charge(self.TWO) == SoftVote(0.1, 20, 4, members_changed=2)
        assert PermuteAndFlip(epsilon=0.2).charge(self.ONE) == Pure(0.2)
        assert PermuteAndFlip(epsilon=0.2).charge(self.TWO) == Pure(0.4)
        assert GNMax(sigma=5.0).charge(self.ONE).rho == pytest.approx(1 / 25)
        confident = ConfidentGNMax(threshold=9.0, sigma_check=4.0, sigma_answer=2.0)
        assert confident.charge(self.ONE).rho == pytest.approx(1 / 32 + 1 / 4)
        laplace, gaussian, vectors, spread = VALUES
        assert laplace.charge(self.ONE) == DiscreteLaplace(2**17, 2**16)
        assert laplace.charge(self.TWO) == DiscreteLaplace(2**17, 2**17)
        assert gaussian.charge(self.ONE).rho == pytest.approx(4**2 / (2 * 20**2 * 0.2**2))
        assert vectors.charge(self.ONE) == Pure(0.5)
        assert spread.charge(self.ONE).rho == pytest.approx(1 / (20**2 * 0.2**2))

    @pytest.mark.parametrize("mechanism", ALL, ids=name)
    def test_two_members_cost_twice_or_four_times(self, mechanism):
        one, two = mechanism.charge(self.ONE), mechanism.charge(self.TWO)
        assert two.rho == pytest.approx(4 * one.rho)
        assert two.epsilon == pytest.approx(2 * one.epsilon)

    @pytest.mark.parametrize("mechanism", ALL, ids=name)
    def test_rules_of_the_interface(self, mechanism):
        assert isinstance(mechanism, PredictionMechanism)
        assert 0 <= mechanism.sampler_error(self.ONE) < 1e-9
        assert mechanism.identity() == {**mechanism.identity()}
        assert "kind" in mechanism.identity()
        assert mechanism.answers == ("labels" if mechanism in LABELS else "values")
        width = width_of(mechanism)
        outputs = torch.randn(20, 6, width)
        table = mechanism.table(outputs)
        assert table.dtype == torch.int64
        parts = [mechanism.table(part) for part in outputs.split(7)]
        assert sum(parts).equal(table)  # it adds up over members
        setting = Setting(num_parts=20, num_outputs=width)
        answer = mechanism.answer(table, setting, SeededNoise(0).uniforms())
        kind = torch.int64 if mechanism.answers == "labels" else torch.float64
        assert (answer.dtype, len(answer)) == (kind, 6)
        again = mechanism.answer(table, setting, SeededNoise(0).uniforms())
        assert answer.equal(again)
        empty = mechanism.table(torch.randn(20, 0, width))
        assert len(mechanism.answer(empty, setting, SeededNoise(0).uniforms())) == 0

    def test_no_consensus_is_said(self):
        mechanism = ConfidentGNMax(threshold=500.0, sigma_check=1.0, sigma_answer=1.0)
        assert drawn(mechanism, [10, 0], 5, 10).tolist() == [NO_CONSENSUS] * 5


SETTLED = [
    (50, 1, 100, 0.0392),
    (50, 2, 100, 0.0630),
    (50, 8, 1000, 0.0659),
    (100, 2, 100, 0.0529),
    (100, 8, 100, 0.1583),
]


class TestBudgets:
    @pytest.mark.parametrize(("parts", "epsilon", "queries", "eta"), SETTLED)
    def test_known_etas(self, parts, epsilon, queries, eta):
        found = SoftMajority.for_budget(
            epsilon=epsilon, delta=1e-5, queries=queries, num_parts=parts, num_classes=10
        )
        assert found.eta == pytest.approx(eta, rel=0.01)

    @pytest.mark.parametrize("members_changed", [1, 2])
    @pytest.mark.parametrize("queries", [1, 100])
    def test_the_noise_is_as_small_as_can_be(self, members_changed, queries):
        setting = Setting(num_parts=30, num_outputs=5, members_changed=members_changed)
        budget = {"epsilon": 3.0, "delta": 1e-6}
        kind = {
            **budget,
            "queries": queries,
            "num_parts": 30,
            "num_classes": 5,
            "members_changed": members_changed,
        }
        mean = {"low": -1.0, "high": 3.0}
        less = 1 + 1e-6
        soft = SoftMajority.for_budget(**kind)
        flip = PermuteAndFlip.for_budget(**kind)
        noisy = GNMax.for_budget(**kind)
        clear = ConfidentGNMax.for_budget(**kind, threshold=20.0)
        laplace = NoisyMean.for_budget(**kind, **mean, noise="laplace")
        gaussian = NoisyMean.for_budget(**kind, **mean, noise="gaussian")
        pairs = [
            (soft, SoftMajority(eta=soft.eta * less)),
            (flip, PermuteAndFlip(epsilon=flip.epsilon * less)),
            (noisy, GNMax(sigma=noisy.sigma / less)),
            (
                clear,
                ConfidentGNMax(
                    threshold=20.0,
                    sigma_check=clear.sigma_check / less,
                    sigma_answer=clear.sigma_answer / less,
                ),
            ),
            (laplace, NoisyMean(**mean, noise="laplace", epsilon=laplace.epsilon * less)),
            (gaussian, NoisyMean(**mean, noise="gaussian", sigma=gaussian.sigma / less)),
        ]
        for enough, too_little in pairs:
            assert queries_for(enough.charge(setting), **budget) >= queries, enough
            assert queries_for(too_little.charge(setting), **budget) < queries, enough

    def test_gaussian_noise_needs_a_delta(self):
        kind = {"epsilon": 1.0, "delta": None, "queries": 1, "num_parts": 9, "num_classes": 2}
        with pytest.raises(InvalidArgumentError, match="pass delta"):
            GNMax.for_budget(**kind)
        assert SoftMajority.for_budget(**kind).eta > 0.5


class TestNoisyMean:
    def test_members_cannot_move_the_sums_further(self):
        """Whatever two outputs a member may give, NaN, infinite and negative ones included."""
        extreme = [NAN, INF, -INF, 0.0, 1.0, 0.5, -3.0, 1e300, 1e-300, 1 / 3]
        scalar = NoisyMean(low=-1.0, high=3.0, noise="laplace", epsilon=1.0, resolution=64)
        levels = scalar.table(torch.tensor([extreme], dtype=torch.float64))
        assert (levels.min(), levels.max()) == (0, 64)
        vectors = VALUES[3]
        rows = torch.cartesian_prod(*[torch.tensor(extreme, dtype=torch.float64)] * 3)
        table = vectors.table(rows.unsqueeze(0))
        length = 2**16
        assert table.min() == 0
        assert table.sum(dim=1).max() <= length
        moved = table.double().unsqueeze(0) - table.double().unsqueeze(1)
        assert moved.abs().sum(dim=-1).max() <= 2 * length
        assert moved.square().sum(dim=-1).max() <= 2 * length**2

    def test_what_is_not_a_number(self):
        assert VALUES[0].table(torch.tensor([[NAN, -INF, INF]])).tolist() == [0, 0, 2**16]
        table = VALUES[2].table(torch.tensor([[[0.2, NAN, 0.1]]]))
        assert table.tolist() == [[2**16, 0, 0]]
        table = VALUES[2].table(torch.tensor([[[0.2, INF, -5.0]]]))
        assert table.tolist() == [[0, 2**16, 0]]

    def test_means_are_right_without_much_noise(self):
        mechanism = NoisyMean(low=-1.0, high=3.0, noise="laplace", epsilon=1e6)
        values = torch.tensor([[0.5, 3.0], [1.5, 9.0]])
        setting = Setting(num_parts=2, num_outputs=1)
        answer = mechanism.answer(mechanism.table(values), setting, SeededNoise(1).uniforms())
        assert answer.tolist() == pytest.approx([1.0, 3.0], abs=1e-4)
        assert mechanism.table(values.unsqueeze(-1)).equal(mechanism.table(values))

    def test_answers_stay_in_range(self):
        answers = drawn(NoisyMean(low=2.0, high=3.0, noise="laplace", epsilon=0.01), 5, 1000, 2)
        assert (answers.min(), answers.max()) == (2.0, 3.0)


@pytest.mark.parametrize("mechanism", ALL, ids=name)
def test_nothing_is_read_back(mechanism):
    width = width_of(mechanism)
    outputs, setting = torch.randn(20, 50, width), Setting(num_parts=20, num_outputs=width)
    with HostReads() as reads:
        table = mechanism.table(outputs)
        mechanism.answer(table, setting, SeededNoise(1).uniforms())
        if isinstance(mechanism, SoftMajority):
            mechanism.private_loss(table, [2.0, 3.0])
        assert reads.count == 0
        table.sum().item()
        assert reads.count == 1


@pytest.mark.parametrize("mechanism", ALL, ids=name)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_everything_runs_on_fake_cuda(mechanism, dtype):
    """Fake tensors have no data: whatever reads the device raises."""
    width = width_of(mechanism)
    setting = Setting(num_parts=20, num_outputs=width)
    with FakeTensorMode(allow_non_fake_inputs=True):  # the host's entropy is real
        outputs = torch.empty(20, 7, width, device="cuda", dtype=dtype)
        table = mechanism.table(outputs)
        answer = mechanism.answer(table, setting, SeededNoise(1).uniforms())
        assert (table.device.type, answer.device.type) == ("cuda", "cuda")
        if isinstance(mechanism, SoftMajority):
            assert mechanism.private_loss(table, [2.0]).device.type == "cuda"


@pytest.mark.parametrize(
    "call",
    [
        lambda: SoftMajority(eta=0.0),
        lambda: SoftMajority(eta=NAN),
        lambda: PermuteAndFlip(epsilon=-1.0),
        lambda: GNMax(sigma=0.0),
        lambda: GNMax(sigma=INF),
        lambda: ConfidentGNMax(threshold=-1.0, sigma_check=1.0, sigma_answer=1.0),
        lambda: ConfidentGNMax(threshold=1.0, sigma_check=0.0, sigma_answer=1.0),
        lambda: NoisyMean(low=1.0, high=0.0, noise="laplace", epsilon=1.0),
        lambda: NoisyMean(low=0.0, high=INF, noise="laplace", epsilon=1.0),
        lambda: NoisyMean(low=-1e308, high=1e308, noise="laplace", epsilon=1.0),
        lambda: NoisyMean(low=0.0, high=1.0, noise="laplace"),
        lambda: NoisyMean(low=0.0, high=1.0, noise="uniform", epsilon=1.0),
        lambda: NoisyMean(low=0.0, high=1.0, noise="laplace", epsilon=1.0, sigma=1.0),
        lambda: NoisyMean(low=0.0, high=2.0, noise="laplace", epsilon=1.0, simplex=True),
        lambda: NoisyMean(low=0.0, high=1.0, noise="laplace", epsilon=1.0, resolution=0),
        lambda: VALUES[0].table(torch.zeros(2, 3, 4)),
        lambda: VALUES[2].table(torch.zeros(2, 3)),
        lambda: drawn(SoftMajority(eta=0.1), [1.0, 2.0], 3, 3),
        lambda: drawn(VALUES[0], [1, 2], 3, 3),
        lambda: SoftMajority(eta=0.1).charge(Setting(num_parts=3, num_outputs=1)),
        lambda: SoftMajority(eta=0.1).private_loss(torch.tensor([[1, 2]]), [1.0]),
    ],
)
def test_bad_input(call):
    with pytest.raises(InvalidArgumentError, match="Expected"):
        call()


def test_charges_are_of_the_known_kinds():
    kinds = {type(m.charge(Setting(num_parts=20, num_outputs=4))) for m in ALL}
    assert kinds == {SoftVote, Pure, Concentrated, DiscreteLaplace}


@pytest.mark.parametrize(
    ("vote", "delta", "parameter", "expected"),
    [
        (GNMax, 1e-5, "sigma", 30.42),
        (SoftMajority, 1e-5, "eta", 0.0631),
        (PermuteAndFlip, None, "epsilon", 0.02),
    ],
)
def test_one_rule_solves_for_the_parameter_of_every_vote(vote, delta, parameter, expected):
    solved = vote.for_budget(
        epsilon=2.0, delta=delta, queries=100, num_parts=50, num_classes=10, members_changed=1
    )
    assert getattr(solved, parameter) == pytest.approx(expected, rel=2e-3)
