"""The catalogue of careless modules and callbacks: what people really write."""

from training.careless import callbacks, kept, logged, metrics, places, read, written

FILES = (logged, kept, places, written, read, metrics, callbacks)
PATTERNS = [pattern for file in FILES for pattern in file.PATTERNS]
