"""The code of ``torch-holdout demo``, which examples use too; other experiments stay outside."""
