"""The code that ``torch-holdout demo`` runs. Other experiments stay outside the package."""
