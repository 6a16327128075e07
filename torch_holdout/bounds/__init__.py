"""One function per theorem; floats only, no torch."""

from torch_holdout.bounds.certificate import Certificate, certify_transcript
from torch_holdout.bounds.counting import counting_anytime
from torch_holdout.bounds.tails import laplace_tail

__all__ = ["Certificate", "certify_transcript", "counting_anytime", "laplace_tail"]
