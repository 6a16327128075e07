"""Hypothesis tries the same cases in every run, so that a failure is a change and not luck."""

from hypothesis import settings

settings.register_profile("fixed", derandomize=True)
settings.load_profile("fixed")
