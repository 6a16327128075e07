"""Formulas of papers that nothing here computes with: one function per statement, floats only.

Sample sizes, lectures, transfer theorems in other forms, costs of private prediction: kept to
compare with, to check printed tables and to teach. A formula that a certificate, a plan or a charge
needs belongs to ``bounds/`` itself; conventions are the same as there.
"""

from torch_holdout.bounds.published.counting import (
    bracket_all_released,
    bracket_data_dependent,
    counting_anytime,
    counting_data_dependent,
    counting_fixed,
    improvement_bits,
)
from torch_holdout.bounds.published.ladder import (
    ladder_best_step,
    ladder_error,
)
from torch_holdout.bounds.published.max_information import (
    information_allowed,
    information_of_description,
    overfitting_from_information,
)
from torch_holdout.bounds.published.prediction import (
    agnostic_parts,
    agnostic_size,
    averaging,
    convex_cost,
    fresh_mean,
    fresh_moment,
    lipschitz_noise_cost,
    prediction_lower_bound,
    private_expectation,
    smooth_convex_cost,
    smooth_noise_cost,
    soft_majority_parts,
    soft_majority_probability,
    soft_majority_size,
    strongly_convex_cost,
)
from torch_holdout.bounds.published.sample_sizes import (
    EffectiveRoundsSize,
    MultiplicativeWeightsSize,
    effective_rounds_size,
    laplace_error,
    laplace_population_size,
    laplace_size,
    lecture_size,
    multiplicative_weights_size,
    sparse_size,
)
from torch_holdout.bounds.published.single_query import (
    chernoff_interval,
    naive_union,
    sample_splitting,
)
from torch_holdout.bounds.published.thresholdout import (
    ThresholdoutPlan,
    thresholdout_epsilon,
    thresholdout_plan,
    thresholdout_size_approximate,
    thresholdout_size_pure,
    thresholdout_tolerance,
)
from torch_holdout.bounds.published.transfer import (
    approximate_transfer_size,
    composed_tolerance,
    expected_gap,
    information_chebyshev,
    moment_transfer_size,
    pure_overfitting,
    pure_tolerance_two_sided,
)

__all__ = [
    "EffectiveRoundsSize",
    "MultiplicativeWeightsSize",
    "ThresholdoutPlan",
    "agnostic_parts",
    "agnostic_size",
    "approximate_transfer_size",
    "averaging",
    "bracket_all_released",
    "bracket_data_dependent",
    "chernoff_interval",
    "composed_tolerance",
    "convex_cost",
    "counting_anytime",
    "counting_data_dependent",
    "counting_fixed",
    "effective_rounds_size",
    "expected_gap",
    "fresh_mean",
    "fresh_moment",
    "improvement_bits",
    "information_allowed",
    "information_chebyshev",
    "information_of_description",
    "ladder_best_step",
    "ladder_error",
    "laplace_error",
    "laplace_population_size",
    "laplace_size",
    "lecture_size",
    "lipschitz_noise_cost",
    "moment_transfer_size",
    "multiplicative_weights_size",
    "naive_union",
    "overfitting_from_information",
    "prediction_lower_bound",
    "private_expectation",
    "pure_overfitting",
    "pure_tolerance_two_sided",
    "sample_splitting",
    "smooth_convex_cost",
    "smooth_noise_cost",
    "soft_majority_parts",
    "soft_majority_probability",
    "soft_majority_size",
    "sparse_size",
    "strongly_convex_cost",
    "thresholdout_epsilon",
    "thresholdout_plan",
    "thresholdout_size_approximate",
    "thresholdout_size_pure",
    "thresholdout_tolerance",
]
