"""What a holdout tells about itself at no charge: it follows from the transcript."""

from torch_holdout.bounds.certificate import Certificate, Interval
from torch_holdout.holdout.prices import Prices
from torch_holdout.holdout.pricing import Asked
from torch_holdout.holdout.reading import AccountReading, own_interval
from torch_holdout.holdout.registration import RegisteredHoldout
from torch_holdout.holdout.results import Answer, Status
from torch_holdout.ledger import Ledger, Recorded
from torch_holdout.mechanisms import Patience


class PublicFacts(RegisteredHoldout):
    """Status, certificate, intervals and prices of a holdout's account."""

    _ledger: Ledger

    def status(self) -> Status:
        """Return budget, counts and privacy: all of it public."""
        return self._reading().status

    def prices(
        self,
        failure: float = 0.05,
        *,
        stop: Patience | None = None,
        evaluations: int | None = None,
    ) -> Prices:
        """Return what the next run would say and be worth, for each choice of what it shows.

        What is said here before a run is what is charged after it, unless other runs say something
        meanwhile. Of a holdout that answers with values: what the next release would be worth.

        Args:
            failure: The probability that a half-width does not hold.
            stop: What would stop the run; None: upper bounds for any rule.
            evaluations: How many evaluations it would make; None: as many as are planned.
        """
        asked = Asked(failure=failure, stop=stop, evaluations=evaluations)
        return self._reading().prices(asked, self._ledger.compared(self._attached()))

    def certificate(self, failure: float = 0.05) -> Certificate:
        """Return how far the published values can be from the population, with the theorem."""
        return self._reading().certificate(failure)

    def intervals(self, failure: float = 0.05) -> list[Interval]:
        """Return a confidence interval for each recorded answer, in ledger order.

        All intervals of releases hold at once with probability ``1 - failure``, and so do all those
        of guesses.
        """
        return self._reading().intervals(self._recorded(), failure).all()

    def interval(self, answer: Answer, failure: float = 0.05) -> Interval:
        """Return the confidence interval of one answer; exhausted and stale ones have none."""
        return own_interval(answer, self._ledger, self._attached(), self.mechanism, failure)

    def _reading(self) -> AccountReading:
        account = self._ledger.summary(self._attached())
        return AccountReading(account, self._ledger.address, self.mechanism)

    def _recorded(self) -> list[Recorded]:
        return self._ledger.answers(self._attached())
