import logging
import os
import sys
import threading
import time

import psycopg
import pytest
from torch_holdout.errors import HoldoutMismatchError, LedgerError
from torch_holdout.ledger import Ledger, verify
from torch_holdout.ledger.postgres import connections as postgres_connections
from torch_holdout.ledger.postgres.backend import _BEGIN_WRITING
from torch_holdout.ledger.schema import ADDED, SCHEMA_VERSION

from support.contracts.ledger_contract import REGISTRATION, Fingerprint, LedgerContract, entry
from support.contracts.records_contract import RecordsContract

pytestmark = pytest.mark.integration


@pytest.fixture
def url(postgres):
    return postgres.new_url()


class TestPostgresLedger(LedgerContract):
    @pytest.fixture
    def address(self, url):
        return url


class TestPostgresRecords(RecordsContract):
    @pytest.fixture
    def address(self, url):
        return url


def register(ledger, name="val", **options):
    options = {"budget": 3, "private": True, "fingerprint": None, **options}
    return ledger.register(name, REGISTRATION, **options)


def record(ledger, row, threshold=None):
    with ledger.account(register(ledger)) as account:
        account.record(row, threshold)


def summary(url):
    ledger = Ledger(url)
    return ledger.summary(register(ledger), check=True)


def database(url):
    return url.split("@/")[1].split("?")[0]


@pytest.mark.parametrize("version", [2, 3, 4, 5])
def test_an_older_ledger_goes_on_with_what_later_versions_added(postgres, url, version):
    record(Ledger(url), entry("a"))
    later = [table.name for at, added in ADDED.items() if at > version for table in added]
    with psycopg.connect(host=postgres.socket, dbname=database(url), user="postgres") as admin:
        for name in reversed(later):
            admin.execute(f"DROP TABLE torch_holdout.{name}")
        admin.execute(f"UPDATE torch_holdout.th_ledger SET schema_version = {version}")
    assert verify(url).findings == []
    ledger = Ledger(url)
    with ledger.account(register(ledger)) as account:
        account.record(entry("b"), None, "later")
    assert [found.run for found in ledger.answers(register(ledger))] == [None, "later"]
    assert verify(url).schema_version == SCHEMA_VERSION
    assert verify(url).findings == []
    postgres.edit(url, "UPDATE th_holdouts SET fingerprint = 'f'")
    assert "fingerprint" in verify(url).findings[0].problem


QUIET_TRIGGER = """
    CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
    CREATE TRIGGER quiet BEFORE INSERT ON th_queries FOR EACH ROW EXECUTE FUNCTION nothing()
"""


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (
            "CREATE RULE quiet AS ON INSERT TO th_queries DO INSTEAD NOTHING",
            "DROP RULE quiet ON th_queries",
            "cannot perform INSERT RETURNING.* Nothing was released",
        ),
        (
            "CREATE RULE quiet AS ON UPDATE TO th_holdouts DO INSTEAD NOTHING",
            "DROP RULE quiet ON th_holdouts",
            "1 row of the ledger, but it changed 0",
        ),
        (
            QUIET_TRIGGER,
            "DROP TRIGGER quiet ON th_queries",
            "1 row of the ledger, but it changed 0",
        ),
    ],
)
def test_a_server_that_quietly_writes_nothing_is_noticed(postgres, url, before, after, said):
    ledger = Ledger(url)
    record(ledger, entry("a"))
    postgres.edit(url, before)
    with (
        pytest.raises(LedgerError, match=said),
        ledger.account(ledger.accounts()["val"]) as account,
    ):
        account.record(entry("b"), None)
    postgres.edit(url, after)
    assert verify(url).findings == []
    assert summary(url).queries == 1


class TestUrl:
    def test_one_ledger_has_one_address(self):
        short = Ledger("postgresql+psycopg://me@DB.example.org/budgets")
        assert short.address == "postgresql+psycopg://me@db.example.org:5432/budgets"
        assert Ledger(short.address).address == short.address
        secure = Ledger("postgresql+psycopg://me@h/b?sslrootcert=/ca&sslmode=verify-full")
        assert secure.address.endswith("/b?sslmode=verify-full&sslrootcert=%2Fca")
        assert Ledger(secure.address).address == secure.address

    @pytest.mark.parametrize(
        ("url", "word"),
        [
            ("postgresql+psycopg://me:hunter2@host/db", "PGPASSWORD"),
            ("postgresql+psycopg://me@host/db?password=hunter2", "options"),
            ("postgresql+psycopg://me@host/db?options=-csynchronous_commit%3Doff", "options"),
            ("postgresql+psycopg://host/db", "one user"),
            ("postgresql+psycopg://me@host", "one database"),
            ("postgresql+psycopg://me@/db", "one host"),
            ("postgresql+psycopg://me@a,b/db", "one host"),
            ("postgresql+psycopg://me@host/db?host=other", "one host"),
            ("postgresql://me@host/db", r"postgresql\+psycopg"),
            ("postgresql+psycopg2://me@host/db", r"postgresql\+psycopg"),
        ],
    )
    def test_others_are_refused(self, url, word):
        with pytest.raises(LedgerError, match=word) as caught:
            Ledger(url)
        assert "hunter2" not in str(caught.value)

    def test_without_the_driver_the_extra_is_named(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "psycopg", None)
        with pytest.raises(LedgerError, match=r"torch-holdout\[postgres\]"):
            Ledger("postgresql+psycopg://me@nowhere/extra")


class TestDoor:
    """What a server says when it does not let us in: one sentence each."""

    def test_unreachable(self):
        start = time.monotonic()
        with pytest.raises(LedgerError, match="can be reached") as caught:
            Ledger("postgresql+psycopg://me@127.0.0.1:1/db").names()
        assert "me@127.0.0.1:1/db" in str(caught.value)
        assert "\n" not in str(caught.value)
        assert time.monotonic() - start < 30

    def test_no_socket(self, tmp_path):
        with pytest.raises(LedgerError, match="socket"):
            Ledger(f"postgresql+psycopg://me@/db?host={tmp_path}").names()

    def test_passwords(self, postgres, url, monkeypatch):
        postgres.require_password("keyed", "right-horse")
        postgres.run("postgres", f"GRANT CREATE ON DATABASE {database(url)} TO keyed")
        address = postgres.url(database(url), "keyed")
        for word in ("hunter2", None):
            if word is None:
                monkeypatch.delenv("PGPASSWORD")
            else:
                monkeypatch.setenv("PGPASSWORD", word)
            with pytest.raises(LedgerError, match="right password") as caught:
                register(Ledger(address))
            assert "hunter2" not in str(caught.value)
        monkeypatch.setenv("PGPASSWORD", "right-horse")
        ledger = Ledger(address)
        record(ledger, entry("a"))
        assert ledger.names() == ["val"]
        assert "right-horse" not in ledger.address + repr(vars(ledger))

    def test_no_database(self, postgres):
        with pytest.raises(LedgerError, match="existing database"):
            Ledger(postgres.url("nowhere")).names()

    def test_no_user(self, postgres, url):
        with pytest.raises(LedgerError, match="server knows"):
            Ledger(postgres.url(database(url), "nobody")).names()

    def test_reading_makes_nothing(self, postgres, url):
        with pytest.raises(LedgerError, match="has none"):
            Ledger(url).names()
        assert Ledger(url).find_records("records") is None
        assert postgres.run(database(url), "SELECT to_regnamespace('torch_holdout')") == [(None,)]

    def test_tables_of_someone_else(self, postgres, url):
        record(Ledger(url), entry("a"))
        postgres.run("postgres", "DROP ROLE IF EXISTS bob", "CREATE ROLE bob LOGIN")
        bob = postgres.url(database(url), "bob")
        with pytest.raises(LedgerError, match="someone else"):
            register(Ledger(bob))
        postgres.run(database(url), "GRANT USAGE ON SCHEMA torch_holdout TO bob")
        with pytest.raises(LedgerError, match=r"'postgres' belongs to someone else and SELECT"):
            register(Ledger(bob))
        postgres.run(database(url), "GRANT ALL ON ALL TABLES IN SCHEMA torch_holdout TO bob")
        postgres.run(database(url), "GRANT ALL ON ALL SEQUENCES IN SCHEMA torch_holdout TO bob")
        assert Ledger(bob).names() == ["val"]
        record(Ledger(bob), entry("b"))
        register(Ledger(bob), name="a holdout of bob's")
        assert summary(url).releases == 2

    def test_no_right_to_make_tables(self, postgres, url):
        postgres.run("postgres", "DROP ROLE IF EXISTS eve", "CREATE ROLE eve LOGIN")
        eve = postgres.url(database(url), "eve")
        with pytest.raises(LedgerError, match="AUTHORIZATION"):
            register(Ledger(eve))
        postgres.run(database(url), "CREATE SCHEMA torch_holdout AUTHORIZATION eve")
        record(Ledger(eve), entry("a"))
        assert summary(eve).releases == 1

    def test_other_tables_in_the_way(self, postgres, url):
        postgres.run(
            database(url), "CREATE SCHEMA torch_holdout", "CREATE TABLE torch_holdout.mine (a int)"
        )
        with pytest.raises(LedgerError, match="other tables"):
            register(Ledger(url))


@pytest.mark.parametrize(
    ("statement", "word"),
    [
        ("DROP INDEX th_latest", "index of th_queries"),
        ("ALTER TABLE th_queries DROP CONSTRAINT th_one_answer", "constraint of th_queries"),
        ("ALTER TABLE th_holdouts DROP CONSTRAINT th_budget_holds", "constraint of th_holdouts"),
        ("ALTER TABLE th_queries ADD COLUMN note text", "another column"),
        ("ALTER TABLE th_queries ALTER COLUMN value DROP NOT NULL", "column of th_queries"),
        ("ALTER TABLE th_holdouts ALTER COLUMN spent TYPE numeric", "column of th_holdouts"),
        ("ALTER TABLE th_charges SET UNLOGGED", "emptied by a crash"),
        ("ALTER TABLE th_queries ENABLE ROW LEVEL SECURITY", "hides rows"),
        ("ALTER TABLE th_queries DISABLE TRIGGER ALL", "foreign keys"),
        ("CREATE RULE r AS ON UPDATE TO th_holdouts DO INSTEAD NOTHING", "trigger or rule"),
        ("CREATE VIEW v AS SELECT 1", "does not belong"),
        ("CREATE TABLE extra (a int)", "does not belong"),
        ("DROP TABLE th_secret_thresholds", "th_secret_thresholds is missing"),
        ("DELETE FROM th_secret_keys", "secret key"),
        (f"UPDATE th_ledger SET schema_version = {SCHEMA_VERSION + 1}", "Update torch_holdout"),
        ("UPDATE th_ledger SET schema_version = 1", "Update torch_holdout"),
        ("DELETE FROM th_queries", "fit together"),
        ("UPDATE th_queries SET value = 0.5", "fit together"),
    ],
)
def test_a_changed_ledger_is_refused(postgres, url, statement, word):
    record(Ledger(url), entry("a"))
    postgres.edit(url, statement)
    with pytest.raises(LedgerError, match=word):
        summary(url)


def test_a_ledger_dropped_under_a_running_process_does_not_come_back(postgres, url):
    ledger = Ledger(url)
    account = register(ledger)
    postgres.run(database(url), "DROP SCHEMA torch_holdout CASCADE")
    with (
        pytest.raises(LedgerError, match=r"dropped.*Nothing was released"),
        ledger.account(account),
    ):
        pass
    with pytest.raises(LedgerError, match="dropped"):
        register(ledger)
    assert postgres.run(database(url), "SELECT to_regnamespace('torch_holdout')") == [(None,)]
    register(Ledger(url))  # somebody makes a new one: the old handle does not take it
    with pytest.raises(LedgerError, match="gone or replaced"), ledger.account(account):
        pass


def test_settings_of_the_transaction(url):
    ledger = Ledger(url)
    register(ledger)
    with ledger._transaction() as connection:
        found = {
            name: connection.exec_driver_sql(f"SHOW {name}").scalar_one()
            for name in ("synchronous_commit", "lock_timeout", "search_path", "fsync")
        }
        level = connection.exec_driver_sql("SHOW transaction_isolation").scalar_one()
    assert found == {
        "synchronous_commit": "on",
        "lock_timeout": "1min",
        "search_path": "torch_holdout, pg_temp",
        "fsync": "on",
    }
    assert level == "read committed"


def test_a_server_that_answers_before_the_disk_is_overruled(postgres, url):
    postgres.run("postgres", f"ALTER DATABASE {database(url)} SET synchronous_commit = off")
    ledger = Ledger(url)
    register(ledger)
    with ledger._transaction() as connection:
        assert connection.exec_driver_sql("SHOW synchronous_commit").scalar_one() == "on"


def test_waiting_for_the_account_ends_with_a_sentence(postgres, url, monkeypatch):
    ledger = Ledger(url)
    account = register(ledger)
    begin = _BEGIN_WRITING.replace("lock_timeout = '60s'", "lock_timeout = '200ms'")
    monkeypatch.setattr("torch_holdout.ledger.postgres.backend._BEGIN_WRITING", begin)
    with psycopg.connect(host=postgres.socket, dbname=database(url), user="postgres") as holder:
        holder.execute("SELECT * FROM torch_holdout.th_holdouts FOR UPDATE")
        with pytest.raises(LedgerError, match="Another process held"), ledger.account(account):
            pass
    record(ledger, entry("a"))


def terminate(server, url):
    server.run(
        "postgres",
        f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database(url)}'",
    )


def test_a_connection_lost_between_transactions_is_replaced(postgres, url):
    ledger = Ledger(url)
    record(ledger, entry("a"))
    terminate(postgres, url)
    record(ledger, entry("b"))
    assert summary(url).releases == 2


def test_a_connection_lost_inside_a_transaction_charges_nothing(postgres, url):
    ledger = Ledger(url)
    account_id = register(ledger)

    def interrupted():
        with ledger.account(account_id) as account:
            account.record(entry("a"), 5)
            terminate(postgres, url)
        return "an answer"

    with pytest.raises(LedgerError, match=r"nothing was released.*status\(\)"):
        interrupted()
    assert summary(url).queries == 0
    record(ledger, entry("a"))


def test_a_commit_whose_outcome_is_unknown_hands_out_nothing(url, monkeypatch):
    """The server has committed, but its word did not arrive."""
    ledger = Ledger(url)
    account_id = register(ledger)
    execute = psycopg.Connection.execute

    def deaf(self, query, *arguments, **options):
        found = execute(self, query, *arguments, **options)
        if query == "COMMIT":
            self.close()
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        return found

    def ask():
        with ledger.account(account_id) as account:
            account.record(entry("a"), None)
        return "an answer"

    with monkeypatch.context() as patch:
        patch.setattr(psycopg.Connection, "execute", deaf)
        with pytest.raises(LedgerError, match=r"nothing was released. status\(\) shows"):
            ask()
    assert summary(url).releases == 1
    with ledger.account(account_id) as account:
        assert account.find("acc", "a").kind == "release"


def test_a_commit_that_the_server_turns_into_a_rollback_is_noticed(url):
    ledger = Ledger(url)
    account_id = register(ledger)

    def careless():
        with ledger.account(account_id) as account:
            account.record(entry("a"), None)
            driver = account._connection.connection.driver_connection
            with pytest.raises(psycopg.Error):
                driver.execute("SELECT 1 / 0")
        return "an answer"

    with pytest.raises(LedgerError, match="nothing was released"):
        careless()
    assert summary(url).queries == 0


def test_idle_connections_are_given_up(url, monkeypatch):
    monkeypatch.setattr(postgres_connections, "_IDLE_SECONDS", 0.5)
    ledger = Ledger(url)
    register(ledger)
    time.sleep(1.2)  # the server has ended the session, and we do not try it
    record(ledger, entry("a"))
    assert summary(url).releases == 1


def test_the_same_data_under_two_names_at_once(url):
    """Exactly one name wins: that of the first to register."""
    register(Ledger(url), "other")
    outcomes, ready = [], threading.Barrier(6)

    def work(name):
        ledger = Ledger(url)
        ready.wait()
        try:
            register(ledger, name, fingerprint=Fingerprint("data"))
            outcomes.append(name)
        except HoldoutMismatchError as error:
            outcomes.append(type(error))

    threads = [threading.Thread(target=work, args=(f"name {n}",)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes.count(HoldoutMismatchError) == 5
    assert len(Ledger(url).names()) == 2


def test_making_a_ledger_at_once(url):
    accounts, ready = [], threading.Barrier(6)

    def work():
        ready.wait()
        accounts.append(register(Ledger(url)))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(accounts) == 6
    assert len(set(accounts)) == 1


def test_a_forked_process_uses_its_own_connection(url):
    ledger = Ledger(url)
    record(ledger, entry("a"))
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            record(ledger, entry("b"))
            os.write(write, str(ledger.summary(register(ledger)).releases).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 10) == b"2"
    record(ledger, entry("c"))
    assert summary(url).releases == 3


def test_a_transaction_carried_over_a_fork_is_not_committed_twice(url):
    ledger = Ledger(url)
    account_id = register(ledger)
    read, write = os.pipe()
    child = None
    try:
        with ledger.account(account_id) as account:
            account.record(entry("a"), None)
            child = os.fork()
    except LedgerError:
        if child != 0:
            raise
        os.write(write, b"refused")
    finally:
        if child == 0:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 10) == b"refused"
    assert summary(url).releases == 1


def test_secrets_are_not_logged(url, caplog):
    caplog.set_level(logging.DEBUG)
    for name in ("sqlalchemy", "sqlalchemy.engine", "sqlalchemy.pool", "psycopg"):
        logging.getLogger(name).setLevel(logging.DEBUG)
    secret = 987654 * 1000 + 321
    try:
        ledger = Ledger(url)
        record(ledger, entry("a", "guess", opened=True), secret)
        with pytest.raises(LedgerError) as caught:
            record(ledger, entry("a", "guess"), secret + 1)
    finally:
        for name in ("sqlalchemy", "sqlalchemy.engine", "sqlalchemy.pool", "psycopg"):
            logging.getLogger(name).setLevel(logging.NOTSET)
    assert str(secret)[:6] not in caplog.text + str(caught.value)


@pytest.mark.parametrize("warns", [True, False])
def test_a_commit_that_the_server_warns_about_is_no_commit(postgres, url, warns):
    """As when the wait for a replica is cancelled: it says COMMIT, and that it is not safe."""
    database = url.split("@/")[1].split("?")[0]
    level = "WARNING" if warns else "LOG"  # the twin goes to the server's log only
    postgres.run(
        database,
        "CREATE TABLE plain (x int)",
        f"CREATE FUNCTION warn() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE {level} 'not safe'; RETURN NULL; END $$",
        "CREATE CONSTRAINT TRIGGER late AFTER INSERT ON plain INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION warn()",
    )
    parameters = {"host": postgres.socket, "dbname": database, "user": "postgres"}
    engine = postgres_connections.pooled_engine(psycopg, parameters)

    def insert():
        with engine.connect() as connection:
            connection.connection.driver_connection.execute("BEGIN", prepare=False)
            connection.exec_driver_sql("INSERT INTO plain VALUES (1)")
            connection.commit()

    try:
        if warns:
            with pytest.raises(psycopg.OperationalError, match="not safe"):
                insert()
        else:
            insert()
    finally:
        engine.dispose()
