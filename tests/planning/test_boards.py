"""The tables of what a board is worth, and what a plan of one assumes."""

import math

import pytest
from torch_holdout.bounds.single_query import binomial_interval
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.planning.boards import plan_board

MODES = ("sealed", "vault", "record", "gate", "ladder")
ERRORS = (0.5, 0.2, 0.05)
# Certified half-widths at these errors as they were first computed, by other code; "-" is .25 or
# more. The column of records was computed by the 1/r law alone, not by the registered mixture.
TABLE = """
1k 5 1|.0411/.0330/.0183|.0493/.0396/.0220|.0775/.0622/.0345||.117/.0942/.0528
1k 5 5|.0492/.0395/.0219|.0536/.0431/.0239|.105/.0841/.0469|.0796/.0639/.0354|.168/.136/.0780
1k 5 50|.0591/.0474/.0262|.0536/.0431/.0239|.138/.111/.0626|.201/.162/.0952|-/.231/.146
1k 50 1|.0524/.0420/.0232|.0626/.0503/.0279|.111/.0893/.0499||-/-/.170
1k 50 5|.0591/.0474/.0262|.0662/.0532/.0295|.138/.111/.0626|.186/.150/.0870|-
1k 50 50|.0676/.0543/.0300|.0662/.0532/.0295|.170/.137/.0787|-|-
1k 500 1|.0618/.0496/.0274|.0738/.0593/.0329|.150/.121/.0688||-
1k 500 5|.0676/.0543/.0300|.0769/.0617/.0343|.170/.137/.0787|-|-
1k 500 50|.0752/.0604/.0334|.0769/.0617/.0343|.207/.168/.0990|-|-
10k 5 1|.0129/.0104/.0057|.0155/.0124/.0068|.0282/.0226/.0123||.0418/.0334/.0183
10k 5 5|.0155/.0124/.0068|.0168/.0135/.0074|.0395/.0316/.0173|.0252/.0202/.0110|.0678/.0543/.0298
10k 5 50|.0186/.0149/.0082|.0168/.0135/.0074|.0516/.0413/.0226|.0658/.0527/.0290|.118/.0948/.0529
10k 50 1|.0165/.0132/.0072|.0197/.0158/.0086|.0413/.0331/.0181||.124/.0997/.0558
10k 50 5|.0186/.0149/.0082|.0209/.0167/.0091|.0516/.0413/.0226|.0606/.0485/.0266|.201/.163/.0954
10k 50 50|.0214/.0171/.0093|.0209/.0167/.0091|.0632/.0506/.0278|.194/.156/.0911|-/-/.181
10k 500 1|.0195/.0156/.0085|.0233/.0187/.0102|.0564/.0452/.0248||-/-/.193
10k 500 5|.0214/.0171/.0093|.0243/.0195/.0106|.0632/.0506/.0278|.177/.142/.0819|-
10k 500 50|.0238/.0191/.0104|.0243/.0195/.0106|.0774/.0620/.0342|-|-
100k 5 1|.0041/.0033/.0018|.0049/.0039/.0021|.0099/.0079/.0043||.0145/.0116/.0063
100k 5 5|.0049/.0039/.0021|.0053/.0043/.0023|.0140/.0112/.0061|.0080/.0064/.0035|.0248/.0198/.0108
100k 5 50|.0059/.0047/.0026|.0053/.0043/.0023|.0182/.0146/.0079|.0209/.0167/.0091|.0432/.0346/.0189
100k 50 1|.0052/.0042/.0023|.0062/.0050/.0027|.0146/.0117/.0064||.0439/.0352/.0192
100k 50 5|.0059/.0047/.0026|.0066/.0053/.0029|.0182/.0146/.0079|.0192/.0154/.0084|.0766/.0614/.0338
100k 50 50|.0067/.0054/.0029|.0066/.0053/.0029|.0221/.0177/.0097|.0635/.0508/.0279|.133/.107/.0602
100k 500 1|.0062/.0049/.0027|.0074/.0059/.0032|.0199/.0159/.0087||.136/.109/.0613
100k 500 5|.0067/.0054/.0029|.0077/.0061/.0033|.0221/.0177/.0097|.0575/.0460/.0252|.229/.186/.111
100k 500 50|.0075/.0060/.0033|.0077/.0061/.0033|.0270/.0216/.0118|.192/.155/.0902|-/-/.212
"""
CELLS = [
    (*map(int, line.split("|")[0].replace("k", "000").split()), mode, cell)
    for line in TABLE.split("\n")[1:-1]
    for mode, cell in zip(MODES, line.split("|")[1:], strict=True)
    if cell
]


def half_width(rows, error, bracket):
    low, high = binomial_interval(round(error * rows), rows, bracket)
    return (high - low) / 2


def expected(cell):
    """Half-widths by error; None for one that says nothing."""
    texts = cell.split("/") if cell != "-" else ["-"] * len(ERRORS)
    return {e: None if text == "-" else float(text) for e, text in zip(ERRORS, texts, strict=True)}


def fits(price, cell, more):
    """Within 1 % and what was rounded; ``more`` nats may come on top of what the table has."""
    for error, known in expected(cell).items():
        widest = half_width(price.rows, error, price.bracket)
        narrowest = half_width(price.rows, error, max(1e-9, price.bracket - more))
        said = price.half_widths[error]
        if known is None:
            assert widest >= 0.99 * 0.25
            assert said is None or said >= 0.99 * 0.25
            continue
        assert said == pytest.approx(widest, rel=1e-3)  # what the command prints
        rounding = 0.5 * 10 ** -(4 if known < 0.1 else 3)
        assert narrowest <= 1.01 * known + rounding
        assert widest >= 0.99 * known - rounding


@pytest.mark.parametrize(("rows", "teams", "each", "mode", "cell"), CELLS)
def test_the_tables_come_out_within_one_percent(rows, teams, each, mode, cell):
    price = plan_board(rows, teams, each).price(mode)
    fits(price, cell, more=math.log(2) if mode == "record" else 0.0)


def test_a_twin_that_forgets_other_teams_does_not_fit():
    with pytest.raises(AssertionError):
        fits(plan_board(10_000, 1, 5).price("ladder"), ".0678/.0543/.0298", more=0.0)


def test_brackets_are_those_of_the_design():
    """At 10,000 rows: sealed ln(40 N), the vault ln(40 F), whatever was told before."""
    for teams, each, sealed, vault in ((5, 5, 6.9, 6.0), (50, 5, 9.2, 8.3), (500, 50, 13.8, 10.6)):
        plan = plan_board(10_000, teams, each)
        assert round(plan.price("sealed").bracket, 1) == sealed
        assert round(plan.price("vault").bracket, 1) == vault


def test_a_single_submission_has_no_gate():
    plan = plan_board(1_000, 5, 1)
    assert [price.mode for price in plan.prices] == ["sealed", "vault", "record", "ladder"]
    with pytest.raises(InvalidArgumentError, match="one of the modes"):
        plan.price("gate")


def test_without_a_vault_there_is_no_final_on_one():
    assert "vault" not in [price.mode for price in plan_board(1_000, 5, 5, public=1).prices]


def test_more_is_never_cheaper():
    small, large = plan_board(10_000, 10, 5), plan_board(10_000, 20, 5)
    for one, other in zip(small.prices, large.prices, strict=True):
        assert one.bracket < other.bracket


def test_the_plan_is_written_as_a_table():
    text = str(plan_board(10_000, 50, 5))
    assert "final on the vault (7,000 rows)" in text
    assert len(text.splitlines()) == 1 + len(MODES)


@pytest.mark.parametrize(
    "changes",
    [
        *({"rows": 0}, {"teams": 0}, {"submissions": 2.5}, {"public": 1.5}, {"step": 0.0}),
        *({"kept": 2}, {"failure": 0}, {"releases": 9}, {"finalists": 0}, {"errors": (2,)}),
    ],
    ids=str,
)
def test_bad_arguments_are_refused(changes):
    arguments = {"rows": 100, "teams": 2, "submissions": 5} | changes
    with pytest.raises(InvalidArgumentError):
        plan_board(**arguments)
