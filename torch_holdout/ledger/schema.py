"""The tables. Never a raw value, never the noise; secrets live in tables of their own.

Released versions are opened forever: a change of meaning needs a new ``SCHEMA_VERSION``.
"""

import sqlalchemy as sa

SCHEMA_VERSION = 4  # charges and their counters are in picos, as accounting has them
WITH_RECORDS, WITH_RUNS, WITH_HEADERS = 2, 3, 4  # the versions that added them
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
ADDED = {
    WITH_RECORDS: (records, charges),
    WITH_RUNS: (runs, refusals),
    WITH_HEADERS: (sketches, headers, header_end),
}
