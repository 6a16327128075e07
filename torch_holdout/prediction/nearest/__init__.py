"""Records under a public embedding, found by nearness.

``embedded_records.py`` keeps them, ``search.py`` compares them with queries, exactly.
"""
