"""Members trained apart from each other on disjoint parts. Answers leave through ``prediction/predictor.py`` only."""
