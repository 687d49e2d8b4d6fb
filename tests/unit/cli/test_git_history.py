"""The demonstration's history of a git repository, against real repositories.

One rule holds for all: each path's last change, without deletions, is what `git ls-tree -r` prints
for the last commit.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from ledgerfold.broker.demo.git_history import (
    Change,
    changes,
    is_shallow,
    last_commit,
    parse_log,
    tree,
)
from ledgerfold.storage.errors import InvalidRequest
from tests.support.git_repository import Repository as GitRepository

pytestmark = pytest.mark.process


class Repository(GitRepository):
    """A repository whose compacted history can be compared with git's tree."""

    def history(self) -> list[Change]:
        return list(changes(self.path, last_commit(self.path)))

    def left(self) -> dict[str, tuple[str | None, str | None]]:
        """Returns what a compaction keeps of the history."""
        last = {change.path: (change.mode, change.blob) for change in self.history()}
        return {path: state for path, state in last.items() if state != (None, None)}

    def check(self, *paths: str) -> None:
        """The rule, and that these are the paths."""
        left = self.left()
        listed = tree(self.path, last_commit(self.path))
        assert left == listed
        assert sorted(left) == sorted(paths)
        names = self.git("ls-tree", "-r", "-z", "--name-only", "--full-tree", "HEAD").split(b"\0")
        assert len(left) == len(names) - 1


@pytest.fixture
def new_repository(tmp_path: Path) -> Callable[[str], Repository]:
    return lambda name: Repository(tmp_path / name)


@pytest.fixture
def repository(new_repository: Callable[[str], Repository]) -> Repository:
    return new_repository("repository")


def test_files_are_added_changed_and_deleted(repository: Repository) -> None:
    """A deletion is a tombstone, and a file that is added again exists again."""
    for name in ("kept", "changed", "deleted", "back"):
        repository.write(name)
    repository.commit()
    repository.write("changed", "y")
    repository.remove("deleted")
    repository.remove("back")
    repository.commit()
    repository.write("back", "z")
    repository.commit()
    repository.check("kept", "changed", "back")
    gone = [change for change in repository.history() if change.value is None]
    assert [change.path for change in gone] == ["back", "deleted"]


def test_values_say_commit_mode_and_blob(repository: Repository) -> None:
    """Reads what the demonstration published."""
    repository.write("a")
    repository.commit()
    (change,) = repository.history()
    assert change.value is not None
    assert json.loads(change.value) == {
        "commit": repository.git("rev-parse", "HEAD").decode().strip(),
        "mode": "100644",
        "blob": repository.git("rev-parse", "HEAD:a").decode().strip(),
    }


def test_unusual_paths(repository: Repository) -> None:
    """Only NUL ends a name."""
    names = [
        " leading and trailing ",
        'quo"ted',
        "it's",
        "back\\slash",
        "tab\there",
        "line\nbreak",
        "\nleading line break",
        "carriage\rreturn",
        ":100644 100644 a b M",
        "commit 0123456789",
        "-n",
        "folder with space/file\twith tab",
        "漢字/é",
        "e\u0301",
        "\x01\x7f",
        "*?[a]",
        "=>",
    ]
    for name in names:
        repository.write(name)
    repository.commit()
    for name in names:
        repository.write(name, "y")
    repository.commit()
    repository.check(*names)


def test_paths_that_are_not_utf8(repository: Repository) -> None:
    """Their odd bytes are written as \\xNN, and two such paths stay two."""
    repository.write(b"latin-\xe9")
    repository.write(b"latin-\xe8")
    repository.write(b"folder-\xff/a")
    repository.commit()
    repository.remove(b"latin-\xe8")
    repository.commit()
    repository.check("latin-\\xe9", "folder-\\xff/a")


def test_a_renamed_file_is_a_deletion_and_an_addition(repository: Repository) -> None:
    """Also where git is configured to find renames and copies."""
    repository.git("config", "diff.renames", "copies")
    repository.write("before", "the same content\n" * 50)
    repository.commit()
    repository.git("mv", "before", "after")
    repository.commit()
    repository.check("after")


def test_modes_change(repository: Repository) -> None:
    """Executable and back, and a file that becomes a link."""
    for name in ("script", "link"):
        repository.write(name)
    repository.commit()
    path = repository.path / "script"
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    (repository.path / "link").unlink()
    (repository.path / "link").symlink_to("script")
    repository.commit()
    repository.check("script", "link")
    modes = {path: mode for path, (mode, _) in repository.left().items()}
    assert modes == {"script": "100755", "link": "120000"}
    path.chmod(0o644)
    repository.commit()
    assert repository.left()["script"][0] == "100644"
    repository.check("script", "link")


def test_a_file_becomes_a_folder_and_a_file_again(repository: Repository) -> None:
    """Deleting the file does not delete the folder's entries, and vice versa."""
    repository.write("a")
    repository.commit()
    repository.remove("a")
    repository.write("a/b/c")
    repository.commit()
    repository.check("a/b/c")
    repository.remove("a/b/c")
    (repository.path / "a" / "b").rmdir()
    (repository.path / "a").rmdir()
    repository.write("a", "again")
    repository.commit()
    repository.check("a")


def test_merges(repository: Repository) -> None:
    """Changes of a merge are attributed to it: added, changed, deleted, resolved by hand."""
    for name in ("both", "theirs", "to delete"):
        repository.write(name)
    repository.commit()
    repository.git("switch", "-q", "-c", "side")
    repository.write("theirs", "from the side")
    repository.write("new", "from the side")
    repository.write("both", "from the side")
    repository.remove("to delete")
    repository.commit()
    repository.git("switch", "-q", "main")
    repository.write("both", "from main")
    repository.commit()
    repository.git("merge", "-q", "--no-commit", "-X", "ours", "side")
    repository.write("both", "resolved")
    repository.write("only in the merge")
    repository.commit()
    repository.check("both", "theirs", "new", "only in the merge")


def test_an_octopus_merge(repository: Repository) -> None:
    """Compared with its first parent alone, each path appears once."""
    repository.write("a")
    repository.commit()
    for name in ("one", "two", "three"):
        repository.git("switch", "-q", "-c", name, "main")
        repository.write(name)
        repository.commit()
    repository.git("switch", "-q", "main")
    repository.git("merge", "-q", "-m", "all", "one", "two", "three")
    repository.check("a", "one", "two", "three")
    assert [change.path for change in repository.history()] == ["a", "one", "three", "two"]


def test_a_merge_of_unrelated_histories(repository: Repository) -> None:
    """Two roots."""
    repository.write("a")
    repository.commit()
    repository.git("switch", "-q", "--orphan", "other")
    repository.write("b")
    repository.commit()
    repository.git("switch", "-q", "main")
    repository.git("merge", "-q", "--allow-unrelated-histories", "-m", "both", "other")
    repository.check("a", "b")


def test_submodules(repository: Repository, new_repository: Callable[[str], Repository]) -> None:
    """A path whose blob is a commit, with the mode 160000; moved on, then removed."""
    other = new_repository("other")
    other.write("a")
    other.commit()
    allow = ("-c", "protocol.file.allow=always")
    repository.git(*allow, "submodule", "add", "-q", str(other.path), "module")
    # Of the onlookers; the history is unchanged.
    repository.git("config", "-f", ".gitmodules", "submodule.module.ignore", "all")
    repository.git("add", "-f", "module")
    repository.commit()
    repository.check(".gitmodules", "module")
    assert repository.left()["module"] == ("160000", last_commit(other.path))
    other.write("a", "y")
    other.commit()
    repository.git(*allow, "submodule", "update", "-q", "--remote", "module")
    repository.git("add", "-f", "module")
    repository.commit()
    repository.check(".gitmodules", "module")
    assert repository.left()["module"] == ("160000", last_commit(other.path))
    repository.git("rm", "-q", "-f", "module")
    repository.commit()
    repository.check(".gitmodules")


def test_commits_that_change_nothing(repository: Repository) -> None:
    """Also as the first and the last of a history."""
    repository.commit("--allow-empty")
    repository.check()
    repository.write("a")
    repository.commit()
    repository.commit("--allow-empty")
    repository.check("a")


def test_settings_that_change_the_output_of_git(repository: Repository) -> None:
    """Tests a user's settings: colours, short ids, signatures, relative paths and quoted names."""
    for name, value in (
        ("color.ui", "always"),
        ("core.abbrev", "4"),
        ("log.showSignature", "true"),
        ("log.decorate", "full"),
        ("log.showRoot", "false"),
        ("log.diffMerges", "combined"),
        ("log.date", "relative"),
        ("log.mailmap", "true"),
        ("diff.relative", "true"),
        ("diff.orderFile", os.devnull),
        ("diff.ignoreSubmodules", "all"),
        ("core.quotePath", "true"),
        ("diff.external", "false"),
        ("diff.noprefix", "true"),
        ("format.pretty", "fuller"),
        ("log.follow", "true"),
    ):
        repository.git("config", name, value)
    repository.write("é")
    repository.write("folder/a")
    repository.commit()
    repository.git("switch", "-q", "-c", "side")
    repository.write("é", "y")
    repository.write("side")
    repository.commit()
    repository.git("switch", "-q", "main")
    repository.write("main")
    repository.commit()
    repository.git("merge", "-q", "-m", "both", "side")
    repository.check("é", "folder/a", "side", "main")
    within = repository.path / "folder"
    found = {change.path for change in changes(within, last_commit(within))}
    assert found == {"é", "folder/a", "side", "main"}


def test_a_subfolder_of_a_repository(repository: Repository) -> None:
    """The history is the whole repository's, with paths from its top."""
    repository.write("top")
    repository.write("folder/a")
    repository.commit()
    folder = repository.path / "folder"
    found = {change.path for change in changes(folder, last_commit(folder))}
    assert found == set(tree(folder, last_commit(folder))) == {"top", "folder/a"}


def test_output_longer_than_one_read(repository: Repository) -> None:
    """Fields end at NUL, not at the end of a read."""
    names = [f"{'long name ' * 15}{number}" for number in range(1000)]
    for name in names:
        repository.write(name)
    repository.commit()
    repository.check(*names)


def test_a_shallow_clone_is_reported(
    repository: Repository, new_repository: Callable[[str], Repository]
) -> None:
    """Their history begins where it was cut, and the rule still holds."""
    for content in ("x", "y", "z"):
        repository.write("a", content)
        repository.write(content)
        repository.commit()
    assert not is_shallow(repository.path)
    clone = repository.path.with_name("clone")
    repository.git("clone", "-q", "--depth", "1", f"file://{repository.path}", str(clone))
    assert is_shallow(clone)
    found = {change.path: (change.mode, change.blob) for change in changes(clone, "HEAD")}
    assert found == tree(clone, "HEAD")


@pytest.mark.parametrize("ask", [last_commit, is_shallow])
def test_a_folder_without_a_repository(tmp_path: Path, ask: Callable[[Path], object]) -> None:
    """The error is git's."""
    with pytest.raises(InvalidRequest, match="git: "):
        ask(tmp_path)


def test_a_repository_without_commits(repository: Repository) -> None:
    """It has no history, which is an error."""
    with pytest.raises(InvalidRequest, match="git: "):
        last_commit(repository.path)


def test_a_failure_of_git_within_the_history_is_an_error(repository: Repository) -> None:
    """An incomplete history is an error."""
    repository.write("a")
    repository.commit()
    repository.write("a", "y")
    repository.commit()
    lost = repository.git("rev-parse", "HEAD~1").decode().strip()
    (repository.path / ".git" / "objects" / lost[:2] / lost[2:]).unlink()
    with pytest.raises(InvalidRequest, match="git log failed"):
        repository.history()


def test_the_format_of_the_log() -> None:
    """As git 2.x prints it: a commit's id, then its changes, a path behind each."""
    fields = [
        b"commit 11",
        b"\n:000000 100644 00 aa A",
        b"one",
        b":000000 100644 00 bb A",
        b"two",
        b"commit 22",
        b"\n:100644 000000 aa 00 D",
        b"one",
    ]
    assert list(parse_log(iter(fields))) == [
        Change("11", "one", "100644", "aa"),
        Change("11", "two", "100644", "bb"),
        Change("22", "one", None, None),
    ]
