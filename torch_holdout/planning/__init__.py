"""Planning before the first query: what a budget will certify, and what a tolerance takes.

Theorems are in ``bounds/``; here they are inverted and put into words.
"""

from torch_holdout.planning.plan import certificate as certificate
from torch_holdout.planning.plan import max_queries as max_queries
from torch_holdout.planning.plan import plan as plan
from torch_holdout.planning.plan import required_holdout_size as required_holdout_size
from torch_holdout.planning.setting import Plan as Plan
