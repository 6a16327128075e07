import pytest

from support.ledger_contract import LedgerContract
from support.records_contract import RecordsContract

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
