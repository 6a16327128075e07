"""Members trained apart from each other on disjoint parts, and their votes.

Answers leave through ``prediction/predictor.py`` only.
"""
