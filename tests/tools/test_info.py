# SPDX-License-Identifier: Apache-2.0
"""`meron info`: what the host offers, for people and for programs."""

from __future__ import annotations

import json
import os

from command import meron


def read_json() -> dict:
    done = meron("info", "--json")
    assert done.returncode == 0
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_json_has_what_a_report_needs():
    info = read_json()
    assert info["version"] == meron("--version").stdout.split()[1]
    assert info["cpu"]["usable_cores"] == len(os.sched_getaffinity(0))
    assert info["cpu"]["kernel_target"]
    assert 0 < info["memory"]["available_bytes"] <= info["memory"]["total_bytes"]
    assert {"total_bytes", "available_bytes"} <= info["dev_shm"].keys()
    assert "memlock_limit_bytes" in info
    assert "huge_pages" in info
    for offer in (*info["transports"], info["io_uring"]):
        assert offer["available"] is True or offer["reason"]
    names = {transport["name"]: transport["available"] for transport in info["transports"]}
    assert names["self"] and names["local"] and names["shm"]


def test_the_text_says_all_that_the_json_says():
    text = meron("info").stdout
    rows = {line[:22].strip(): line[22:].strip() for line in text.splitlines()}
    info = read_json()
    assert rows["version"] == info["version"]
    assert rows["cpu"] == info["cpu"]["name"]
    assert rows["usable cores"] == str(info["cpu"]["usable_cores"])
    for transport in info["transports"]:
        assert rows[transport["name"]].startswith(
            "available" if transport["available"] else f"unavailable: {transport['reason']}"
        )
    words = set(text.split())
    assert set(info["cpu"]["features"]) <= words
    for key in ("memory", "huge pages", "dev shm", "memlock limit", "io uring"):
        assert key in rows, key
    assert "bytes" not in words  # sizes are written for people
    assert max(map(len, text.splitlines())) <= 100


def test_the_command_sees_its_own_limits():
    pinned = meron("info", "--json", preexec_fn=lambda: os.sched_setaffinity(0, {0}))
    assert json.loads(pinned.stdout)["cpu"]["usable_cores"] == 1
