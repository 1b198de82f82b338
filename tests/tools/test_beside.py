# SPDX-License-Identifier: Apache-2.0
"""tools/bench beside: what it says of two checkouts, whose benchmarks are stand-ins here."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench" / "shared"))
import beside  # noqa: E402
from report import BenchError  # noqa: E402

# Each run takes its values off the front of a list.
STAND_IN = """
import json, pathlib, sys
if "--help" in sys.argv:
    sys.exit(None if sys.argv[1] in "xy" else f"there is no benchmark {sys.argv[1]!r}")
file = sys.argv[sys.argv.index("--json") + 1]
runs = pathlib.Path("runs.json")
values, *rest = json.loads(runs.read_text())
if values is None:
    sys.exit("no room on the drive")
runs.write_text(json.dumps(rest))
pathlib.Path("options").write_text(" ".join(sys.argv[4:]))
goals = [{"name": n, "value": v, "goal": 1, **({"at_least": False} if "time" in n else {})}
         for n, v in values.items()]
pathlib.Path(file).write_text(json.dumps({"goals": goals}))
"""


def checkout(folder: Path, runs: list[dict[str, float] | None]) -> Path:
    (folder / "tools").mkdir(parents=True)
    (folder / "tools" / "run_bench.py").write_text(STAND_IN)
    (folder / "runs.json").write_text(json.dumps(runs))
    return folder


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    def run(before, now, *words, names=("x",)):
        checkout(tmp_path / "before", before)
        monkeypatch.setattr(beside, "ROOT", checkout(tmp_path / "now", now))
        report = str(tmp_path / "report.json")
        given = [str(tmp_path / "before"), *names, "--json", report, *words]
        monkeypatch.setattr(sys, "argv", ["beside.py", *given])
        beside.main()
        return capsys.readouterr().out, json.loads((tmp_path / "report.json").read_text())

    return run


def test_lists_improvements_and_regressions(run):
    before = [{"rate": 10, "time": 1.0, "noise": 1}, {"rate": 11, "time": 1.1, "noise": 9}]
    now = [{"rate": 20, "time": 2.0, "noise": 7}, {"rate": 22, "time": 2.2, "noise": 8}]
    text, report = run(before * 2, now * 2, "--turns", "4")
    found = {each["name"]: each["verdict"] for each in report["benches"]["x"]}
    noise = "better, by less than turns differ"
    assert found == {"rate": "better", "time": "worse", "noise": noise}
    assert "+100.0%" in text and "-100.0%" in text and "+50.0%" in text
    assert report["benches"]["x"][0]["before"] == [10, 11, 10, 11]


def test_small_differences_are_none(run):
    _, report = run([{"rate": 100, "time": 0}] * 3, [{"rate": 97.1, "time": 0}] * 3)
    assert {each["verdict"] for each in report["benches"]["x"]} == {"same"}


def test_the_checkouts_take_turns_at_being_first(run):
    text, _ = run([{"rate": 1}] * 2, [{"rate": 1}] * 2, "--turns", "2")
    sides = [line.rsplit(", ", 1)[1] for line in text.splitlines() if "turn" in line]
    assert sides == ["before", "now", "now", "before"]


def test_figures_of_one_checkout_alone_are_listed_as_such(run):
    text, report = run([{"old": 1}] * 3, [{"new": 1}] * 3)
    assert "before only" in text and "now only" in text
    assert all("verdict" not in each for each in report["benches"]["x"])


def test_options_reach_both(run, tmp_path):
    run([{"rate": 1}] * 3, [{"rate": 1}] * 3, "--options=--quick --elements 5")
    for side in ("before", "now"):
        assert (tmp_path / side / "options").read_text() == "--quick --elements 5"


def test_a_run_that_fails_is_named_with_its_words(run):
    with pytest.raises(BenchError, match=r"x in .*now ended with 1:\nno room on the drive"):
        run([{"rate": 1}] * 3, [None])


def test_an_unknown_name_fails_before_anything_runs(run, tmp_path):
    with pytest.raises(BenchError, match="there is no benchmark 'speed'"):
        run([{"rate": 1}], [{"rate": 1}], "--turns", "1", names=("x", "speed"))
    assert not (tmp_path / "before" / "options").exists()


def test_a_folder_that_is_no_checkout_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["beside.py", str(tmp_path), "overhead"])
    with pytest.raises(BenchError, match="is no checkout of Meron"):
        beside.main()
