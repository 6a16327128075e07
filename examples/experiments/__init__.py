"""Experiments that the demo, the examples and the tests share: attacks, curves and figures.

They play both sides, so they may look at raw values of data they have made or bundled. Nothing in
the library imports them but ``cli.py``, and no one's results should.
"""
