"""The benchmarks' runner: what it finds, what it reports, and that page and results agree."""

import copy
import json
import re
import signal
import subprocess
import sys
import time

import psutil
import pytest

from support.oracles.benchmarks import FOLDER, benchmark_module

PAGE = FOLDER.parent / "docs" / "benchmarks.md"
results_of, page_of, run = (benchmark_module(name) for name in ("_results", "_page", "run"))

ROW = {
    "benchmark": "fake",
    "case": "a case",
    "peer": "a peer",
    "ratio": 0.5,
    "better": "lower",
    "ours": 1.0,
    "theirs": 2.0,
    "unit": "s",
}
DATE = "2026-01-02 03:04 UTC"
RUN = {"seconds": 3, "failed": None, "measured": DATE, "quick": False, "load": 0.5}
RESULTS = {
    "date": DATE,
    "machine": {"processor": "a processor", "cores": "2"},
    "benchmarks": [
        RUN | {"name": "fake"},
        RUN | {"name": "broken", "seconds": 1, "failed": "exit code 3"},
    ],
    "missing": [],
    "rows": [ROW, ROW | {"ratio": 2.0, "ours": 4.0, "peer": "a better peer"}],
}


@pytest.fixture
def folder(tmp_path):
    """Fake benchmarks beside modules and a runner that are none."""
    for name in ("_shared", "run"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('no benchmark')")
    add(tmp_path, "fake", f"print({json.dumps(ROW)!r})")
    return tmp_path


def add(folder, name, code):
    (folder / f"{name}.py").write_text(code)


def rows_of(results):
    """The rows as they were printed; each says when it was measured."""
    dates = {one["name"]: one["measured"] for one in results["benchmarks"]}
    assert all(row["measured"] == dates[row["benchmark"]] for row in results["rows"])
    return [{k: v for k, v in row.items() if k != "measured"} for row in results["rows"]]


def call(folder, *options):
    """Run all of a folder; return the exit code and the results."""
    output = folder / "found.json"
    code = run.main(["--folder", str(folder), "--output", str(output), *options])
    return code, json.loads(output.read_text())


def test_every_script_is_found_and_has_a_title_and_a_word_about_it():
    names = [path.stem for path in run.scripts(FOLDER)]
    assert "run" not in names
    assert not any(name.startswith("_") for name in names)
    assert set(names) == set(page_of.TITLES) == set(page_of.ABOUT)
    assert {needed.benchmark for needed in results_of.REQUIRED.values()} <= set(names)


def test_a_folder_is_run_and_written(folder, capsys):
    document = folder / "page.md"
    code, found = call(folder, "--page", str(document))
    out, err = capsys.readouterr()
    assert code == 0
    assert rows_of(found) == [ROW]
    assert [one["failed"] for one in found["benchmarks"]] == [None]
    assert err.startswith("1/1 fake ... ")
    assert "2x faster" in out
    assert out.isascii()  # no terminal: plain
    assert document.read_text() == page_of.page(found)


def test_only_some_and_quick(folder, capsys):
    add(folder, "other", "import sys; sys.exit(7 if '--quick' in sys.argv else 8)")
    code, found = call(folder, "--only", "other", "--quick")
    assert code == 1
    assert found["benchmarks"][0]["failed"] == "exit code 7"
    assert found["benchmarks"][0]["quick"]
    with pytest.raises(SystemExit):
        run.main(["--folder", str(folder), "--only", "nothing"])
    assert "there are: fake, other" in capsys.readouterr().err


def test_only_a_whole_run_writes_the_results_by_itself(folder):
    run.main(["--folder", str(folder), "--quick"])
    run.main(["--folder", str(folder), "--only", "fake"])
    assert not (folder / "results.json").exists()
    run.main(["--folder", str(folder)])
    assert rows_of(json.loads((folder / "results.json").read_text())) == [ROW]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("raise SystemExit(3)", "exit code 3"),
        ("print('garbage')", "it printed a line that is not a comparison"),
        ("print('[1]')", "it is no JSON object"),
        ("pass", "it printed no comparison"),
        (f"print({json.dumps(ROW)!r})", "'benchmark' is not the script's name"),
        ("import time; time.sleep(600)", "it took more than 5 seconds"),
    ],
)
def test_a_failure_is_reported_and_the_others_run(folder, capsys, code, reason):
    add(folder, "broken", code)
    exit_code, found = call(folder, "--limit", "5" if "sleep" in code else "120")
    assert exit_code == 1
    assert rows_of(found) == [ROW]
    failed = {one["name"]: one["failed"] for one in found["benchmarks"]}
    assert failed["fake"] is None
    assert reason in failed["broken"]
    assert "failed: " in capsys.readouterr().out


@pytest.mark.parametrize(
    "change",
    [
        {"ratio": float("nan")},
        {"ours": float("inf")},
        {"theirs": "1"},
        {"better": "bigger"},
        {"case": None},
        {"benchmark": "other"},
    ],
)
def test_a_row_must_be_whole(change):
    assert results_of.read_row(json.dumps(ROW), "fake") == ROW
    with pytest.raises(ValueError, match=r"no text|no finite number|no direction"):
        results_of.read_row(json.dumps(ROW | change), "fake")


def test_an_earlier_run_can_be_shown_again(folder, capsys):
    call(folder)
    first = capsys.readouterr().out
    add(folder, "fake", "raise SystemExit('it ran')")
    earlier, document = folder / "found.json", folder / "page.md"
    options = ["--show", str(earlier), "--page", str(document), "--folder", str(folder)]
    assert run.main(options) == 0
    assert capsys.readouterr() == (first, "")
    assert document.read_text() == page_of.page(json.loads(earlier.read_text()))
    assert not (folder / "results.json").exists()


def committed():
    return json.loads((FOLDER / "results.json").read_text())


def test_the_committed_results_are_whole():
    found = committed()
    names = [path.stem for path in run.scripts(FOLDER)]
    assert [one["name"] for one in found["benchmarks"]] == names
    assert not any(one["failed"] for one in found["benchmarks"])
    assert not any(one["quick"] for one in found["benchmarks"] if one["name"] in results_of.BY_HAND)
    rows_of(found)
    for row in found["rows"]:
        assert results_of.read_row(json.dumps(row), row["benchmark"]) == row
    assert found["missing"] == results_of.missing(found["rows"], names) == []


@pytest.mark.parametrize("name", sorted(results_of.REQUIRED))
def test_a_required_ratio_that_is_left_out_is_named(name):
    needed, rows = results_of.REQUIRED[name], committed()["rows"]
    left = [row for row in rows if not needed.matches(row)]
    assert name in results_of.missing(left, {row["benchmark"] for row in rows})
    assert results_of.missing(left, set()) == []


def test_a_missing_ratio_is_a_failure(folder, capsys):
    """The twin prints comparisons as it should, but not the one that is asked for."""
    row = ROW | {"benchmark": "blockwise"}
    add(folder, "blockwise", f"print({json.dumps(row)!r})")
    assert call(folder)[0] == 0
    rows = [row | {"benchmark": "import_time", "peer": "import something else"}]
    add(folder, "import_time", f"print({json.dumps(rows[0])!r})")
    code, found = call(folder)
    assert (code, found["missing"][0]) == (1, "import time")
    assert "missing: import time" in capsys.readouterr().err


def test_the_page_is_that_of_the_committed_results():
    assert PAGE.read_text() == page_of.page(committed())


def quality_rows(peer, **facts):
    rows = [row for row in committed()["rows"] if row["benchmark"] == "quality"]
    wanted = facts.items()
    found = [r for r in rows if r["peer"] == peer and all(r.get(k) == v for k, v in wanted)]
    assert found
    return found


@pytest.mark.parametrize(
    ("way", "most"), [("sealed", 0.002), ("display-stopped", 0.002), ("live plan", 0.005)]
)
def test_the_committed_regret_is_close_to_that_of_raw_values(way, most):
    """Where the holdout has at least 2,000 examples: in every task but the digits."""
    rows = [r for r in quality_rows("raw values", way=way) if "n=500" not in r["task"]]
    assert len(rows) >= 4
    assert all(row["regret"] - row["raw_regret"] <= most for row in rows)


def test_the_committed_sealed_runs_have_the_weights_of_raw_values():
    for row in quality_rows("raw values", way="sealed"):
        assert row["same_weights"] == row["seeds"] >= 8
        assert row["regret"] == row["raw_regret"]


def test_the_committed_widths_are_small():
    widths = {row["case"]: row["ratio"] for row in quality_rows("one fresh query")}
    assert widths["one sealed run, m=200, n=10000"] <= 1.6
    assert widths["20 display-stopped runs, m=200, n=10000"] <= 2.05
    assert widths["tabular CE, n=10,000, sealed, closed"] <= 1.1


def test_a_page_has_the_quality_of_each_way():
    quality = benchmark_module("_quality_page")
    text = "\n".join(quality.quality_tables(quality_rows("raw values")))
    assert text.count("| raw values |") == 1
    assert text.count("| sealed |") == 2
    assert list(quality.quality_tables([ROW])) == []


def test_the_machine_is_described_without_its_name(monkeypatch):
    machine = benchmark_module("_machine")
    monkeypatch.setattr(machine.platform, "node", lambda: pytest.fail("the host's name was read"))
    found = machine.machine()
    assert list(found)[:5] == ["processor", "cores", "memory", "system", "Python"]
    assert {"torch-holdout", "torch", "lightning", "torchmetrics"} <= set(found)
    assert set(committed()["machine"]) == set(found)
    paths = r'"/|/(home|root|tmp|Users)/'
    assert not re.search(paths, json.dumps(found) + json.dumps(committed()))


def test_a_page_says_everything():
    text = page_of.page(RESULTS)
    assert "Measured on 2026-01-02 03:04 UTC; processor a processor, cores 2." in text
    assert "| a case | a peer | 1 | 2 | s | 0.5 | 2x faster |" in text
    assert "**Failed**: exit code 3." in text
    assert "**fake**\n\n- a case: 2x slower than a better peer" in text
    assert not any(
        words in text for words in ("a quick run", "shared the cores", "Measured on 2025")
    )
    assert text == page_of.page(copy.deepcopy(RESULTS))
    assert "Nowhere in this run." in page_of.page(RESULTS | {"rows": [ROW]})


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"quick": True}, "This was a quick run"),
        ({"load": 7.0}, "7 processes shared the cores"),
        ({"measured": "2025-01-02 03:04 UTC"}, "Measured on 2025-01-02 03:04 UTC."),
        ({"machine": {"torch": "2.0"}}, "torch 2.0."),
    ],
)
def test_a_page_says_what_is_not_as_for_the_others(facts, words):
    runs = [RUN | {"name": "fake"} | facts, RUN | {"name": "other"}]
    text = page_of.page(RESULTS | {"benchmarks": runs})
    assert text.index("## fake") < text.index(words) < text.index("## other")
    assert text.count(words) == 1


def test_a_page_gives_a_reason_where_the_alternative_is_better():
    worse = ROW | {"ratio": 2.0, "benchmark": "noise"}
    text = page_of.page(RESULTS | {"rows": [worse]})
    assert f"**Noise**: {page_of.WHY['noise']}\n\n- a case: 2x slower than a peer" in text
    worse = {row["benchmark"] for row in committed()["rows"] if results_of.is_worse(row)}
    assert worse <= set(page_of.WHY) <= set(page_of.TITLES)


def test_what_is_run_by_hand_keeps_its_last_results(folder, monkeypatch):
    """A twin that forgot them would leave the page without half of its tables."""
    monkeypatch.setattr(run, "BY_HAND", ("slow",))
    slow = ROW | {"benchmark": "slow"}
    add(folder, "slow", f"print({json.dumps(slow)!r})")
    file = folder / "results.json"
    run.main(["--folder", str(folder)])
    assert rows_of(json.loads(file.read_text())) == [ROW]
    run.main(["--folder", str(folder), "--only", "slow", "--into", str(file), "--quick"])
    earlier = json.loads(file.read_text())
    earlier["machine"]["torch"] = "0.1"
    for one in (*earlier["benchmarks"], *earlier["rows"]):
        one["measured"] = DATE
    file.write_text(json.dumps(earlier))
    add(folder, "slow", "raise SystemExit('it ran')")
    add(folder, "another", f"print({json.dumps(ROW | {'benchmark': 'another'})!r})")
    run.main(["--folder", str(folder)])
    found = json.loads(file.read_text())
    assert [row["benchmark"] for row in rows_of(found)] == ["another", "fake", "slow"]
    *_, kept = found["benchmarks"]
    assert (kept["measured"], kept["quick"], kept["machine"]) == (DATE, True, {"torch": "0.1"})
    assert found["date"] != DATE
    assert run.main(["--folder", str(folder), "--all"]) == 1  # now it is run


def test_one_that_is_run_again_leaves_date_and_machine_of_the_others(folder):
    for name in ("second", "third"):
        add(folder, name, f"print({json.dumps(ROW | {'benchmark': name})!r})")
    file = folder / "results.json"
    run.main(["--folder", str(folder)])
    earlier = json.loads(file.read_text())
    earlier |= {"date": DATE, "machine": earlier["machine"] | {"torch": "0.1"}}
    file.write_text(json.dumps(earlier))
    run.main(["--folder", str(folder), "--only", "fake", "--into", str(file)])
    found = json.loads(file.read_text())
    first, second, third = found["benchmarks"]
    assert (found["date"], found["machine"]) == (DATE, earlier["machine"])
    assert first["machine"]["torch"] != "0.1"
    assert not {"machine"} & (second.keys() | third.keys())


@pytest.mark.parametrize(
    ("change", "text", "worse"),
    [
        ({"ratio": 0.5}, "2x faster", False),
        ({"ratio": 1.25}, "1.25x slower", True),
        ({"ratio": 1.004}, "the same", False),
        ({"ratio": 0.996, "better": "higher"}, "the same", False),
        ({"ratio": 4.0, "better": "higher"}, "4x faster", False),
        ({"ratio": 0.25, "better": "higher"}, "4x slower", True),
        ({"ratio": 0.5, "unit": "epsilon"}, "2x tighter", False),
        ({"ratio": 2.0, "unit": "distance"}, "2x looser", True),
        ({"ratio": 0.001, "unit": "reads"}, "1,000x fewer", False),
        ({"ratio": 2.0, "unit": "releases"}, "2x more", True),
        ({"ratio": 1.5, "yardstick": True}, "150 % of it", False),
    ],
)
def test_verdicts(change, text, worse):
    assert results_of.verdict(ROW | change) == text
    assert results_of.is_worse(ROW | change) is worse


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (1e-5, "1.00e-05"),
        (0.00012345, "0.000123"),
        (0.5, "0.5"),
        (0.9999, "1"),
        (12.345, "12.3"),
        (99.99, "100"),
        (1234.5, "1,230"),
        (1001.0, "1,001"),
        (12_345.0, "12,300"),
        (34_300_000.0, "34,300,000"),
    ],
)
def test_numbers_have_three_digits(value, text):
    assert results_of.number(value) == text


SLEEPS = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open({path!r}, "w").write(f"{{child.pid}}\\n")
time.sleep(600)
"""


def test_stopping_the_runner_ends_the_benchmark_and_its_children(tmp_path):
    pids = tmp_path / "pids.txt"
    add(tmp_path, "slow", SLEEPS.format(path=str(pids)))
    command = [sys.executable, str(FOLDER / "run.py"), "--folder", str(tmp_path)]
    runner = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        while not (pids.exists() and pids.read_text().endswith("\n")):
            assert runner.poll() is None
            time.sleep(0.05)
        started = [psutil.Process(int(pids.read_text())), *psutil.Process(runner.pid).children()]
        runner.send_signal(signal.SIGTERM)
        _, err = runner.communicate(timeout=60)
    finally:
        runner.kill()
    assert runner.returncode == 130
    assert "stopped; nothing was written" in err
    assert not (tmp_path / "results.json").exists()
    gone, alive = psutil.wait_procs(started, timeout=20)
    assert (len(gone), alive) == (2, [])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["import_time", "host_reads", "noise", "accounting", "quality"])
def test_a_cheap_benchmark_prints_what_is_asked_for(name):
    rows, failed = run.run_script(FOLDER / f"{name}.py", quick=True, limit=280)
    assert failed is None
    assert results_of.missing(rows, [name]) == []
