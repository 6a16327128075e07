"""One function per theorem; floats only, no torch."""

from torch_holdout.bounds.certificate import Certificate, certify_transcript
from torch_holdout.bounds.counting import (
    counting_anytime,
    counting_data_dependent,
    counting_fixed,
)
from torch_holdout.bounds.single_query import (
    binary_kl,
    chernoff_interval,
    hoeffding,
    kl_interval,
    naive_union,
    sample_splitting,
)
from torch_holdout.bounds.tails import laplace_tail

__all__ = [
    "Certificate",
    "binary_kl",
    "certify_transcript",
    "chernoff_interval",
    "counting_anytime",
    "counting_data_dependent",
    "counting_fixed",
    "hoeffding",
    "kl_interval",
    "laplace_tail",
    "naive_union",
    "sample_splitting",
]
