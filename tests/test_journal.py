"""The journal: on disk at once, in order over sessions."""

from cluster_fixtures import new_run

from cluster.journal import Journal
from loadgen.store import Run


def test_each_event_is_on_disk_when_add_returns_and_harmless(tmp_path):
    run = new_run(tmp_path)
    journal = Journal(run)
    journal.add("run_started", "small")
    journal.add("cell_failed", "said \x1b[31m \ud800", platform="box", server_id="s", cell=("c", 2))
    rows = Run.open(tmp_path / "run").read("journal").to_pylist()
    assert [(row["seq"], row["event"], row["detail"]) for row in rows] == [
        (0, "run_started", "small"),
        (1, "cell_failed", "said [31m "),
    ]
    assert (rows[1]["platform"], rows[1]["server_id"], rows[1]["cell_id"], rows[1]["repeat"]) == (
        "box",
        "s",
        "c",
        2,
    )
    assert rows[0]["unix_ns"] <= rows[1]["unix_ns"]


def test_a_second_session_goes_on_counting_and_keeps_the_first(tmp_path):
    run = new_run(tmp_path)
    first, second = Journal(run), None
    first.add("run_started")
    first.add("interrupted")
    second = Journal(run)
    second.add("run_resumed")
    rows = sorted(run.read("journal").to_pylist(), key=lambda row: row["seq"])
    assert [(row["seq"], row["event"]) for row in rows] == [
        (0, "run_started"),
        (1, "interrupted"),
        (2, "run_resumed"),
    ]
    assert rows[0]["session"] == rows[1]["session"] != rows[2]["session"]
