# SPDX-License-Identifier: Apache-2.0
"""bench/results: summaries of reports, `tools/bench keep`, and the files that are kept."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench" / "shared"), str(ROOT / "tools")]
import keep  # noqa: E402
import report  # noqa: E402
import results  # noqa: E402

import run_bench  # noqa: E402

KEPT = ROOT / "bench" / "results"
RUNS = [
    {"ms": [4, 1, 2], "bytes": 64, "exact": True, "rest": 10},
    {"ms": [6, 8], "bytes": 64, "exact": True, "rest": 20, "paired": 0.5},
]
GOAL = {"name": "many layers, x peer", "value": 2.5, "goal": 2, "at_least": True, "passed": True}
MACHINE = {"cpu": "A CPU", "cores": 2, "kernel": "6.1"}
REPORT = {
    "bench": "torch",
    "date": "2026-11-25",
    "command": "tools/bench torch",
    "commit": "0123456789ab",
    "machine": MACHINE,
    "series": [{"arm": "meron", "runs": RUNS}],
    "goals": [GOAL],
}


@pytest.fixture
def kept(tmp_path, monkeypatch, capsys):
    """Saves a report as a run does, keeps it, and returns the folder of summaries."""
    folder = tmp_path / "results"
    folder.mkdir()
    monkeypatch.setattr(keep, "SAVED", tmp_path)

    def run(content: dict, *words: str) -> Path:
        (tmp_path / "torch.json").write_text(json.dumps(content))
        monkeypatch.setattr(sys, "argv", ["keep.py", *words, "--results", str(folder)])
        keep.main()
        return folder

    return run


def test_samples_become_median_range_and_number():
    spread = {"median": 2.5, "min": 1, "max": 9, "samples": 4}
    assert results.summary({"us": [1, 9, 2, 3]}) == {"us": spread}


def test_runs_of_a_case_become_one():
    assert results.summary(REPORT)["series"] == [
        {
            "arm": "meron",
            "runs": {
                "turns": 2,
                # The median of a run counts once, however many samples it has.
                "ms": {"median": 4.5, "min": 1, "max": 8, "samples": 5},
                "bytes": 64,
                "exact": True,
                "rest": {"median": 15, "min": 10, "max": 20, "samples": 2},
                "paired": 0.5,
            },
        }
    ]


def test_passes_of_several_turns_become_a_median_each():
    assert results.summary({"seconds_by_pass": [[1, 2], [3, 4], [8, 3]]}) == {
        "seconds_by_pass": [3, 3]
    }


def test_settings_and_series_stay():
    content = {"sizes": [1024, 4096], "losses": [3.5, 3.25], "backend": "io_uring", "direct": True}
    assert results.summary(content) == content


def test_each_case_has_a_line():
    text = results.text_of(results.summary(REPORT))
    assert json.loads(text) == results.summary(REPORT)
    lines = text.splitlines()
    assert sum(line.startswith('  {"arm": "meron", ') for line in lines) == 1
    assert sum(line.startswith('  {"name": "many layers, x peer", ') for line in lines) == 1


def test_keep_writes_the_summary_and_the_page(kept):
    folder = kept(REPORT, "torch", "--as", "torch_again")
    assert json.loads((folder / "torch_again.json").read_text()) == results.summary(REPORT)
    page = (folder / "README.md").read_text()
    assert "`tools/bench torch` on 2026-11-25, commit 0123456789ab, A CPU, 2 cores" in page
    assert "| many layers, x peer | 2.5 | ≥ 2 | met |" in page


def test_keep_dates_a_report_that_has_no_date(kept):
    folder = kept({"goals": [GOAL]}, "torch")
    found = json.loads((folder / "torch.json").read_text())
    assert (found["bench"], found["command"]) == ("torch", "tools/bench torch")
    assert found["date"] == report.today()


@pytest.mark.parametrize(
    ("words", "content", "message"),
    [
        (["io"], REPORT, "io.json: No such file or directory. Run the benchmark first"),
        (["torch"], {"quick": True}, "a run with --quick"),
    ],
)
def test_keep_rejects_reports_that_are_no_measurements(kept, words, content, message):
    with pytest.raises(report.BenchError, match=message):
        kept(content, *words)


def test_a_command_names_no_path_of_the_machine():
    words = ["--build", "/b", "--size", "4", "--dir=/data", "--json", "/j", "--quick"]
    assert report.command_line("io", words) == "tools/bench io --size 4 --quick"


def test_a_run_saves_its_report_by_default(monkeypatch, tmp_path):
    monkeypatch.setattr(run_bench, "SAVED", tmp_path / "results")
    saved = str(tmp_path / "results" / "io.json")
    assert run_bench.with_report("io", ["--size", "4"]) == ["--size", "4", "--json", saved]
    assert (tmp_path / "results").is_dir()
    for words in (["--quick"], ["--json", "x.json"], ["--json=x.json"], ["--help"]):
        assert run_bench.with_report("io", words) == words


@pytest.mark.parametrize("path", sorted(KEPT.rglob("*.json")), ids=lambda path: path.name)
def test_kept_results_have_no_samples(path):
    content = json.loads(path.read_text())
    assert results.summary(content) == content
    assert results.text_of(content) == path.read_text()


def test_the_page_shows_the_kept_results():
    page = (KEPT / "README.md").read_text()
    assert page == results.page_of(results.reports_in(KEPT)), "run tools/bench keep"
