"""The catalogue of careless modules and callbacks: what people really write."""

from training.careless import (
    callbacks,
    holders,
    kept,
    logged,
    metrics,
    places,
    read,
    sent,
    written,
)

FILES = (logged, kept, places, holders, written, read, sent, metrics, callbacks)
PATTERNS = [pattern for file in FILES for pattern in file.PATTERNS]
