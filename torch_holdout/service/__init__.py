"""The holdout service: predictions are answered from the process of the data's owner.

HTTP, files and commands belong here; what a board answers and charges is ``holdout/``'s.
"""
