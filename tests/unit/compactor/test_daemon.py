"""The daemon of Spark's Python workers: where it imports pyspark from."""

from __future__ import annotations

from pathlib import Path

from ledgerfold.compactor.daemon import without_archives


def test_an_installed_pyspark_is_preferred_to_its_archives(tmp_path: Path) -> None:
    """Archives of another Spark stay: its modules may be of another version."""
    packages, other = tmp_path / "site-packages", tmp_path / "opt" / "spark"
    own = packages / "pyspark" / "python" / "lib" / "pyspark.zip"
    foreign = other / "python" / "lib" / "pyspark.zip"
    for archive in (own, foreign):
        archive.parent.mkdir(parents=True)
        archive.touch()
    rest = ["", str(tmp_path), str(foreign), str(packages)]
    assert without_archives([str(own), *rest]) == rest
    assert without_archives([str(own), str(tmp_path)]) == [str(own), str(tmp_path)]
