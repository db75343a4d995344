"""Files are written whole or not at all."""

import pytest

from chonn_ops import files


def test_of_two_writers_the_last_one_wins_whole(tmp_path):
    path = tmp_path / "out"
    with files.whole_file(path, force=True) as one, files.whole_file(path, force=True) as two:
        one.write_text("one")
        two.write_text("two, longer")
    assert path.read_text() == "one"
    (tmp_path / "b").write_text("early")
    with pytest.raises(FileExistsError), files.whole_file(tmp_path / "b", force=False):
        pass
    assert sorted(file.name for file in tmp_path.iterdir()) == ["b", "out"]
