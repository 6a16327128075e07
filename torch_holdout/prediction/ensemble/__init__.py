"""Members trained apart from each other on disjoint parts. What leaves is ``predictor.py``'s."""
