"""What `versions.py` reads out of pytest, and that it tests this checkout."""

import json
import zipfile

import pytest
import versions


@pytest.mark.parametrize(
    ("summary", "expected"),
    [
        ("812 passed, 3 skipped, 40 deselected in 200.12s (0:03:20)", (812, 0, 3)),
        ("2 failed, 810 passed, 5 warnings, 1 error in 9.01s", (810, 3, 0)),
        ("= 1 passed, 2 errors in 9.01s =", (1, 2, 0)),
    ],
)
def test_counts(summary, expected):
    assert tuple(versions.counts(summary).values()) == expected


def test_collection_that_fails_is_no_result():
    with pytest.raises(SystemExit, match="1 error in"):
        versions.counts("23 deselected, 1 error in 29.60s")


def test_wheel_of_another_checkout_is_refused(tmp_path):
    wheel = tmp_path / "chonn_ops-0-py3-none-any.whl"
    paths = [*(versions.ROOT / "chonn_ops").rglob("*.py")]
    with zipfile.ZipFile(wheel, "w") as archive:
        for path in paths[1:]:
            archive.write(path, path.relative_to(versions.ROOT))
    with pytest.raises(SystemExit, match=f"expected .*{paths[0].name} of this checkout"):
        versions.check_wheel(wheel)
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.write(paths[0], paths[0].relative_to(versions.ROOT))
    versions.check_wheel(wheel)


def test_rows_are_kept_in_order(tmp_path, monkeypatch):
    monkeypatch.setattr(versions, "RESULTS", tmp_path / "versions.json")
    for name, passed in (("3.12", 1), ("3.10-oldest", 2), ("3.12", 3)):
        versions.keep({"name": name, "passed": passed})
    rows = json.loads((tmp_path / "versions.json").read_text())["results"]
    assert rows == [{"name": "3.10-oldest", "passed": 2}, {"name": "3.12", "passed": 3}]
