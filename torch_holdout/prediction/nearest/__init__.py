"""Records under a public embedding, found by nearness.

``prediction/nearest/embedded_records.py`` keeps them, and ``prediction/nearest/search.py`` compares
them with queries, exactly.
"""
