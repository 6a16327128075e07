"""A page about a ledger: the questions, the certified intervals, and what may be reported.

It reads a ledger and nothing else: it charges nothing, asks nothing, and claims no more than the
certificates of ``bounds/`` do.
"""

from torch_holdout.report.page import page, write
from torch_holdout.report.summary import Report, summarise
from torch_holdout.report.tables import content, rows
from torch_holdout.report.verdict import paragraph

__all__ = ["Report", "content", "page", "paragraph", "rows", "summarise", "write"]
