"""The science behind some examples: attacks, curves and sweeps, and their pictures."""
