"""Views of boards for the page: ordinary, hostile, large, guidance, closed, empty."""

from dataclasses import replace

from torch_holdout.service.server.view import TeamRow, View

from support.builders.stand_in_board import CERTIFICATE

HOSTILE = (
    "<script>document.title='mine'</script>", "'\"><img src=x onerror=alert(1)>",
    "{{ 7 * 7 }}", "\u202eright to left", "\u05d0\u05d1\u05d2", "a" * 40, "&amp;amp;",
    "\u00e9" * 40,
)  # fmt: skip


def row(team, value=None, width=0.02, rank=None, apart=(), left=(12, 3), **more):
    """A team's line."""
    interval = None if value is None or width is None else (value - width, value + width)
    return TeamRow(
        team=team, value=value, interval=interval, rank=rank, not_told_apart_from=tuple(apart),
        submissions_left=left[0], releases_left=left[1], exhausted=0 in left, **more,
    )  # fmt: skip


def facts(**more):
    """A board's public facts."""
    return {
        "name": "digits-2026", "title": "Digits, spring 2026", "mode": "ladder", "state": "open",
        "closes": "2026-12-01T12:00:00+00:00", "closed_at": None, "rows": 10_000,
        "upload": "classes", "classes": 10, "first": "accuracy", "budget": 400, "baseline": 0.55,
        "public": 0.3,
        "statistics": {"accuracy": {"low": 0.0, "high": 1.0, "mode": "max", "kind": "accuracy"}},
        "certificate": CERTIFICATE, "position": 1480, "chain": "7be1" * 16,
    } | more  # fmt: skip


def view(rows, certified=True, **more):
    """A view of these lines."""
    own = facts(**more)
    promise = (
        "Now: 3,000 rows; the intervals hold together with 95 % confidence.",
        "At closing: 7,000 rows that nobody was told anything about; with 95 % confidence each "
        "of 100 lies within \u00b1.021 at worst.",
        "All accounts count together: having two of them gains nothing that is certified.",
    )
    return View(
        facts=own, state=own["state"], position=own["position"], chain=own["chain"],
        rows=tuple(rows), certified=certified, promise=promise,
        budget={"releases": 400, "released": 212, "submissions": 2500, "submitted": 1480,
                "nats": 1102.4},
    )  # fmt: skip


def ordinary():
    """The sketch of the design: three that cannot be told apart, one that can, one untold."""
    return view([
        row("alpha", 0.914, rank=(1, 3), apart=("beta", "gamma")),
        row("beta", 0.906, rank=(1, 3), apart=("alpha", "gamma"), left=(40, 6)),
        row("gamma", 0.9011, rank=(1, 3), apart=("alpha", "beta"), left=(2, 1)),
        row("delta", 0.831, rank=(4, 4), left=(0, 0)),
        row("eta", left=(49, 8)),
    ])  # fmt: skip


def guidance():
    """Values without intervals."""
    rows = [row("alpha", 0.914, None, rank=(1, 1)), row("beta", 0.906, None, rank=(2, 2))]
    return view(rows, certified=False)


def hostile():
    """Names that would be markup, and a title that would be."""
    rows = [row(name, 0.9 - 0.01 * i, rank=(1, 8), apart=HOSTILE) for i, name in enumerate(HOSTILE)]
    return view(rows, title="<b onclick=alert(1)>Digits</b> \u202e")


def many(teams=500):
    """Five hundred teams of which none can be told apart."""
    names = [f"team {i:03}" for i in range(teams)]
    rows = [
        row(name, 0.95 - 0.0004 * i, rank=(1, teams), apart=[n for n in names if n != name])
        for i, name in enumerate(names)
    ]
    return view(rows)


def closed():
    """A board that was judged on its vault."""
    rows = [
        row("beta", 0.9012, 0.011, rank=(1, 2), apart=("alpha",), public_value=0.906),
        row("alpha", 0.8988, 0.011, rank=(1, 2), apart=("beta",), public_value=0.914),
        row("eta"),
    ]
    results = CERTIFICATE | {"ordering_bracket": 12.2}
    made = view(rows, state="closed", closed_at="2026-12-02T09:30:00+00:00")
    return replace(made, results=results)


def sealed():
    """A board that tells nothing before closing."""
    return view([row("alpha"), row("beta")], mode="sealed")


def gate():
    """A board of challenges."""
    return view([row("agent 1"), row("agent 2")], mode="gate", closes=None)


def empty():
    """A board without a team."""
    return view([])


VIEWS = {
    "ordinary": ordinary, "guidance": guidance, "hostile": hostile, "many": many,
    "closed": closed, "sealed": sealed, "gate": gate, "empty": empty,
}  # fmt: skip
