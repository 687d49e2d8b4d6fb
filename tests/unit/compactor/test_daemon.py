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
    (packages / "pyspark" / "__init__.py").touch()
    rest = ["", str(tmp_path), str(foreign), str(packages)]
    assert without_archives([str(own), *rest]) == rest
    assert without_archives([str(own), str(tmp_path)]) == [str(own), str(tmp_path)]


def test_archives_stay_unless_their_package_would_be_imported_instead(tmp_path: Path) -> None:
    """Otherwise Spark would get the modules of another version, or none."""
    copied, packages, first = (tmp_path / name for name in ("opt", "site-packages", "first"))
    archives = [each / "pyspark" / "python" / "lib" / "pyspark.zip" for each in (copied, packages)]
    for archive in archives:
        archive.parent.mkdir(parents=True)
        archive.touch()
    (first / "pyspark").mkdir(parents=True)
    for folder in (packages, first):
        (folder / "pyspark" / "__init__.py").touch()
    for path in ([archives[0], copied, packages], [archives[1], first, packages]):
        texts = [str(each) for each in path]
        assert without_archives(texts) == texts


def test_a_symbolic_link_to_the_packages_does_not_matter(tmp_path: Path) -> None:
    """Spark resolves links in the path of its own folder, Python does not."""
    packages, link = tmp_path / "site-packages", tmp_path / "link"
    (packages / "pyspark").mkdir(parents=True)
    (packages / "pyspark" / "__init__.py").touch()
    link.symlink_to(packages)
    archive = packages / "pyspark" / "python" / "lib" / "pyspark.zip"
    assert without_archives([str(archive), str(link)]) == [str(link)]
