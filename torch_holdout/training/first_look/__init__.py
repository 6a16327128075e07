"""What user code does with the holdout's first batch, seen on marked tensors; no value leaves."""
