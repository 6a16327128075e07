"""The plan of a board as a table for people."""

from torch_holdout._shared.text import confidence_text, counted, up
from torch_holdout.planning.boards import BoardPlan, BoardPrice

_WORDS = {
    "sealed": "nothing is told; all rows judge every submission at closing",
    "vault": "feedback on the public part; the vault judges the finalists",
    "record": "one Ladder for all: new records are told",
    "gate": "keep or revert, against the team's own incumbent",
    "ladder": "each team's own best value, when it improved by a step",
}


def plan_text(plan: BoardPlan) -> str:
    """Return the table: for each kind of feedback what the last submission's interval is worth.

    Example:
        >>> price = BoardPrice(mode="vault", rows=7000, bracket=8.3, half_widths={0.5: 0.0209})
        >>> plan = BoardPlan(rows=10_000, teams=50, submissions=5, public=0.3, finalists=2,
        ...                  releases=3, failure=0.05, prices=(price,))
        >>> print(plan_text(plan))
        10,000 rows, 50 teams, 5 submissions each: half the interval of the last submission, ...
        feedback      rows   nats   at 0.5
        vault        7,000    8.3   0.0209  feedback on the public part; the vault judges ...
        "-" is .25 or more. Record, gate and ladder are told from all rows and have no vault.
    """
    errors = list(plan.prices[0].half_widths)
    head = (
        f"{counted(plan.rows, 'row')}, {counted(plan.teams, 'team')}, "
        f"{counted(plan.submissions, 'submission')} each: half the interval of the last "
        f"submission, with {confidence_text(plan.failure)} confidence for all at once"
    )
    columns = "".join(f"{f'at {error:g}':>9}" for error in errors)
    lines = [head, f"{'feedback':<10}{'rows':>8}{'nats':>7}{columns}"]
    lines += [_line(price, errors) for price in plan.prices]
    lines.append(
        '"-" is .25 or more. Record, gate and ladder are told from all rows and have no vault.'
    )
    return "\n".join(lines)


def _line(price: BoardPrice, errors: list[float]) -> str:
    widths = (price.half_widths[error] for error in errors)
    cells = "".join(f"{'-' if width is None else up(width):>9}" for width in widths)
    words = _WORDS[price.mode]
    return f"{price.mode:<10}{price.rows:>8,}{price.bracket:>7,.1f}{cells}  {words}"
