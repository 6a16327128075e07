"""The tables. Never a raw value, never the noise; secrets live in tables of their own.

Released versions are opened forever: a change of meaning needs a new ``SCHEMA_VERSION``.
"""

import sqlalchemy as sa

SCHEMA_VERSION = 8  # charges and their counters are in picos, as accounting has them
WITH_RECORDS, WITH_RUNS, WITH_HEADERS, WITH_SEALED = 2, 3, 4, 5  # the versions that added them
WITH_SYMBOLS = 6  # events that an account says on request: their prices must be known to be paid
WITH_BOARDS = 7
WITH_CHECKED = 8
APPLICATION_ID = 0x7468_6F6C  # marks an SQLite file as ours
ZEPTO = 10**21  # total variation between samplers and their laws is kept in these, rounded up

metadata = sa.MetaData()

ledger = sa.Table(
    "th_ledger",
    metadata,
    sa.Column("schema_version", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("created_at", sa.String(40), nullable=False),
    sa.Column("created_by", sa.String(80), nullable=False),
)

holdouts = sa.Table(
    "th_holdouts",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("account", sa.String(32), nullable=False, unique=True),
    sa.Column("name", sa.String(200), nullable=False, unique=True),
    sa.Column("registration", sa.Text, nullable=False),
    sa.Column("fingerprint", sa.String(64), unique=True),
    sa.Column("budget", sa.Integer, nullable=False),
    sa.Column("queries", sa.Integer, nullable=False, default=0),
    sa.Column("releases", sa.Integer, nullable=False, default=0),
    sa.Column("rounds", sa.Integer, nullable=False, default=0),
    sa.Column("last_release", sa.Integer, nullable=False, default=0),  # its position, 0 for none
    sa.Column("spent", sa.BigInteger),  # NULL: without noise nothing is private
    sa.Column("chain", sa.String(64), nullable=False),
    sa.Column("created_at", sa.String(40), nullable=False),
    sa.CheckConstraint("releases >= 0 AND releases <= budget", name="th_budget_holds"),
)

queries = sa.Table(
    "th_queries",
    metadata,
    sa.Column("holdout_id", sa.Integer, sa.ForeignKey("th_holdouts.id"), primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("statistic", sa.String(200), nullable=False),
    sa.Column("query", sa.String(64), nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),  # 0, then one for each fresh=True
    sa.Column("kind", sa.String(10), nullable=False),
    sa.Column("grid_index", sa.BigInteger),  # NULL for a guess
    sa.Column("value", sa.Double, nullable=False),  # as published, in the user's units
    sa.Column("compared", sa.Boolean, nullable=False),
    sa.Column("opened", sa.Boolean, nullable=False),
    sa.Column("units", sa.BigInteger, nullable=False),
    sa.Column("charge", sa.BigInteger),
    sa.Column("seeded", sa.Boolean, nullable=False),
    sa.Column("asked_at", sa.String(40), nullable=False),
    sa.Column("version", sa.String(80), nullable=False),
    sa.Column("chain", sa.String(64), nullable=False),
    sa.UniqueConstraint("holdout_id", "statistic", "query", "attempt", name="th_one_answer"),
)
sa.Index("th_latest", queries.c.holdout_id, queries.c.statistic, queries.c.kind, queries.c.position)

thresholds = sa.Table(
    "th_secret_thresholds",
    metadata,
    sa.Column("holdout_id", sa.Integer, sa.ForeignKey("th_holdouts.id"), primary_key=True),
    sa.Column("units", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("threshold", sa.BigInteger, nullable=False),
)

keys = sa.Table(
    "th_secret_keys",
    metadata,
    sa.Column("purpose", sa.String(40), primary_key=True),
    sa.Column("secret", sa.LargeBinary, nullable=False),
)

# Version 2 added the accounts of training records.
records = sa.Table(
    "th_records",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("account", sa.String(32), nullable=False, unique=True),
    sa.Column("name", sa.String(200), nullable=False, unique=True),
    sa.Column("registration", sa.Text, nullable=False),
    sa.Column("fingerprint", sa.String(64), unique=True),
    sa.Column("capacity", sa.BigInteger, nullable=False),  # picos of the account's currency
    sa.Column("spent", sa.BigInteger, nullable=False, default=0),
    sa.Column("queries", sa.BigInteger, nullable=False, default=0),
    sa.Column("charges", sa.BigInteger, nullable=False, default=0),  # how many rows
    sa.Column(
        "variation", sa.BigInteger, nullable=False, default=0
    ),  # zeptos, of all samplers together
    sa.Column("chain", sa.String(64), nullable=False),
    sa.Column("created_at", sa.String(40), nullable=False),
    sa.CheckConstraint("spent >= 0 AND spent <= capacity", name="th_capacity_holds"),
)

charges = sa.Table(
    "th_charges",
    metadata,
    sa.Column("records_id", sa.Integer, sa.ForeignKey("th_records.id"), primary_key=True),
    sa.Column("position", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("purpose", sa.String(20), nullable=False),
    sa.Column("detail", sa.Text, nullable=False),  # the mechanism, as JSON
    sa.Column("queries", sa.BigInteger, nullable=False),
    sa.Column("charge", sa.BigInteger, nullable=False),
    sa.Column("variation", sa.BigInteger, nullable=False),
    sa.Column("seeded", sa.Boolean, nullable=False),
    sa.Column("asked_at", sa.String(40), nullable=False),
    sa.Column("version", sa.String(80), nullable=False),
    sa.Column("chain", sa.String(64), nullable=False),
)

# Version 3 added what only people read: which run asked, and what was asked in vain.
runs = sa.Table(
    "th_runs",
    metadata,
    sa.Column("holdout_id", sa.Integer, primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("run", sa.String(200), nullable=False),
    sa.ForeignKeyConstraint(
        ["holdout_id", "position"], ["th_queries.holdout_id", "th_queries.position"]
    ),
)

refusals = sa.Table(
    "th_refusals",
    metadata,
    sa.Column("holdout_id", sa.Integer, sa.ForeignKey("th_holdouts.id"), primary_key=True),
    sa.Column("statistic", sa.String(200), primary_key=True),
    sa.Column("run", sa.String(200), primary_key=True),  # empty for none
    sa.Column("count", sa.BigInteger, nullable=False),
    sa.Column("first_at", sa.String(40), nullable=False),
    sa.Column("last_at", sa.String(40), nullable=False),
)

# Version 4 added what an account was made for: a sketch of its data, and headers of all accounts in
# one chain, so that an edited or deleted account is noticed.
sketches = sa.Table(
    "th_sketches",
    metadata,
    sa.Column("account", sa.String(32), primary_key=True),  # of a holdout or of training records
    sa.Column("size", sa.BigInteger, nullable=False),  # records of the dataset
    sa.Column("bound", sa.BigInteger, nullable=False),  # keyed record hashes below it are kept
    sa.Column("hashes", sa.LargeBinary, nullable=False),  # sorted, eight bytes each, big-endian
)

headers = sa.Table(
    "th_headers",
    metadata,
    sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("account", sa.String(32), nullable=False),
    sa.Column("name", sa.String(200), nullable=False),  # for people, if the account is gone
    sa.Column("parameters", sa.String(64), nullable=False),  # digest of what was registered
    sa.Column("data", sa.String(64), nullable=False),  # digest of fingerprint and sketch
    sa.Column("chain", sa.String(64), nullable=False),
)
sa.Index("th_header_of", headers.c.account, headers.c.position)

header_end = sa.Table(
    "th_header_end",  # one row: where the chain of headers ends
    metadata,
    sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("chain", sa.String(64), nullable=False),
)

# Version 5 added sealed runs, closing, and the cut that a holdout is a part of.
run_ends = sa.Table(
    "th_run_ends",  # where the chain of an account's run events ends
    metadata,
    sa.Column("holdout_id", sa.Integer, sa.ForeignKey("th_holdouts.id"), primary_key=True),
    sa.Column("events", sa.Integer, nullable=False),
    sa.Column("chain", sa.String(64), nullable=False),
    sa.Column("closed_at", sa.String(40)),  # NULL while it is open
)

sealed_runs = sa.Table(
    "th_sealed_runs",  # how each run stands; every column follows from its events
    metadata,
    sa.Column("holdout_id", sa.Integer, sa.ForeignKey("th_holdouts.id"), primary_key=True),
    sa.Column("run", sa.Integer, primary_key=True, autoincrement=False),  # from 1, as begun
    sa.Column("share", sa.Integer),  # 1 to the budget; NULL once it was given up for free
    sa.Column("label", sa.String(200)),
    sa.Column("rule", sa.Text, nullable=False),  # what stops it and what is best in it, as JSON
    sa.Column("state", sa.String(10), nullable=False),
    sa.Column("evaluations", sa.Integer, nullable=False),
    sa.Column("passes", sa.Integer, nullable=False),
    sa.Column("best", sa.Integer),  # the evaluation that was handed over
    sa.Column("best_pass", sa.Integer),  # the pass that made it the best one
    sa.Column("weights", sa.Text),  # where its best weights are, if they were kept
    sa.UniqueConstraint("holdout_id", "share", name="th_one_run_a_share"),
)

run_events = sa.Table(
    "th_run_events",
    metadata,
    sa.Column("holdout_id", sa.Integer, sa.ForeignKey("th_holdouts.id"), primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("run", sa.Integer, nullable=False),
    sa.Column("kind", sa.String(10), nullable=False),
    sa.Column("evaluation", sa.Integer),  # its number in the run, from 1
    sa.Column("query", sa.String(64)),
    sa.Column("step", sa.String(60)),  # of the training loop, which tells passes apart
    sa.Column("nats", sa.Double),  # what was said by others so far, or the price of what this says
    sa.Column("detail", sa.Text),
    sa.Column("seeded", sa.Boolean, nullable=False),
    sa.Column("asked_at", sa.String(40), nullable=False),
    sa.Column("version", sa.String(80), nullable=False),
    sa.Column("chain", sa.String(64), nullable=False),
)
sa.Index("th_events_of_run", run_events.c.holdout_id, run_events.c.run, run_events.c.position)

# Of a query with a live answer: run 0, and its position for the evaluation. Erased by closing.
secret_sums = sa.Table(
    "th_secret_sums",
    metadata,
    sa.Column("holdout_id", sa.Integer, sa.ForeignKey("th_holdouts.id"), primary_key=True),
    sa.Column("run", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("evaluation", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("statistic", sa.String(200), primary_key=True),
    sa.Column("total", sa.BigInteger, nullable=False),  # the sum of levels
    sa.Column("squares", sa.String(40)),  # the sum of their squares; NULL for blocks
)

secret_runs = sa.Table(
    "th_secret_runs",  # what the rule of an open run compares with; erased when the run ends
    metadata,
    sa.Column("holdout_id", sa.Integer, sa.ForeignKey("th_holdouts.id"), primary_key=True),
    sa.Column("run", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("state", sa.Text, nullable=False),  # JSON
)

closed_sums = sa.Table(
    "th_closed_sums",  # the same as the secret ones, public since closing
    metadata,
    sa.Column("holdout_id", sa.Integer, sa.ForeignKey("th_holdouts.id"), primary_key=True),
    sa.Column("run", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("evaluation", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("statistic", sa.String(200), primary_key=True),
    sa.Column("total", sa.BigInteger, nullable=False),
    sa.Column("squares", sa.String(40)),
)

cuts = sa.Table(
    "th_cuts",
    metadata,
    sa.Column("account", sa.String(32), primary_key=True),
    sa.Column("whole", sa.String(64), nullable=False),  # keyed fingerprint of the dataset cut
    sa.Column("cut", sa.String(200), nullable=False),  # how it was cut
)

# Version 7 added boards: accounts that many analysts ask, each with a quota of its own.
boards = sa.Table(
    "th_boards",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("account", sa.String(32), nullable=False, unique=True),
    sa.Column("name", sa.String(200), nullable=False, unique=True),
    sa.Column("registration", sa.Text, nullable=False),
    sa.Column("fingerprint", sa.String(64), unique=True),  # NULL: labels are registered by digest
    sa.Column("budget", sa.Integer, nullable=False),
    # The rest follows from its events.
    sa.Column("events", sa.Integer, nullable=False, default=0),
    sa.Column("submissions", sa.Integer, nullable=False, default=0),
    sa.Column("releases", sa.Integer, nullable=False, default=0),
    sa.Column("ones", sa.Integer, nullable=False, default=0),  # flags that said yes
    sa.Column("zeros", sa.Integer, nullable=False, default=0),
    sa.Column("rank_nats", sa.Double, nullable=False, default=0.0),  # of the law of records
    sa.Column("nats", sa.BigInteger, nullable=False, default=0),  # picos of all that was told
    sa.Column("best", sa.BigInteger),  # on the grid: the record of all analysts
    sa.Column("closed_at", sa.String(40)),  # NULL while it is open
    sa.Column("chain", sa.String(64), nullable=False),
    sa.Column("created_at", sa.String(40), nullable=False),
    sa.CheckConstraint("releases >= 0 AND releases <= budget", name="th_board_budget_holds"),
)

analysts = sa.Table(
    "th_analysts",
    metadata,
    sa.Column("board_id", sa.Integer, sa.ForeignKey("th_boards.id"), primary_key=True),
    sa.Column("analyst", sa.String(200), primary_key=True),
    sa.Column("added", sa.Integer, nullable=False),  # the event's position
    sa.Column("max_submissions", sa.Integer, nullable=False),
    sa.Column("submissions", sa.Integer, nullable=False, default=0),
    sa.Column("max_releases", sa.Integer, nullable=False),
    sa.Column("releases", sa.Integer, nullable=False, default=0),
    sa.Column("best", sa.BigInteger),  # on the grid: its own best release
    sa.Column("best_at", sa.Integer),  # the event's position
    sa.Column("incumbent", sa.String(64)),  # the submission that its next one challenges
    sa.Column("refused", sa.BigInteger, nullable=False, default=0),  # only people read it
    sa.Column("created_at", sa.String(40), nullable=False),
    sa.CheckConstraint(
        "submissions >= 0 AND submissions <= max_submissions", name="th_submissions_hold"
    ),
    sa.CheckConstraint("releases >= 0 AND releases <= max_releases", name="th_releases_hold"),
)

board_events = sa.Table(
    "th_board_events",
    metadata,
    sa.Column("board_id", sa.Integer, sa.ForeignKey("th_boards.id"), primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("kind", sa.String(10), nullable=False),  # add, submit, close or judge
    sa.Column("analyst", sa.String(200)),
    sa.Column("query", sa.String(64)),
    sa.Column("number", sa.Integer),  # of the submission, from 1
    sa.Column("said", sa.BigInteger),  # picos of all that was told before it
    sa.Column("nats", sa.BigInteger),  # picos of what it told, rounded up
    sa.Column("detail", sa.Text, nullable=False),  # JSON
    sa.Column("asked_at", sa.String(40), nullable=False),
    sa.Column("version", sa.String(80), nullable=False),
    sa.Column("chain", sa.String(64), nullable=False),
    sa.UniqueConstraint("board_id", "analyst", "query", name="th_one_submission"),
)
# Version 8 added how far an account was replayed, so that opening it replays what came later.
checked = sa.Table(
    "th_checked",
    metadata,
    sa.Column("account", sa.String(32), primary_key=True),  # empty: of the file itself
    sa.Column("position", sa.BigInteger, nullable=False),
    sa.Column("state", sa.Text, nullable=False),  # the link and the counters there, as JSON
    sa.Column("mark", sa.String(64), nullable=False),  # of all that, under the ledger's secret
)
ADDED = {
    WITH_RECORDS: (records, charges),
    WITH_RUNS: (runs, refusals),
    WITH_HEADERS: (sketches, headers, header_end),
    WITH_SEALED: (
        run_ends,
        sealed_runs,
        run_events,
        secret_sums,
        secret_runs,
        closed_sums,
        cuts,
    ),
    WITH_SYMBOLS: (),
    WITH_BOARDS: (boards, analysts, board_events),
    WITH_CHECKED: (checked,),
}
