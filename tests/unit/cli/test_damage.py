"""`verify` and `repair` on a directory after its broker has ended."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ledgerfold.storage.errors import Corruption
from ledgerfold.storage.lock import DirectoryLock
from ledgerfold.storage.rocks import RocksKeyValue
from ledgerfold.storage.rocks_reading import read_pairs
from tests.support.broker_process import BrokerProcess
from tests.support.command_line import Ran, ledgerfold
from tests.support.documents import document

pytestmark = pytest.mark.process

RELIABILITY = Path(__file__).parents[3] / "docs" / "RELIABILITY.md"
DOCS = RELIABILITY.read_text()
FEW = ("--compactor", "off", "--ledger-entries", "4")
TOPIC = "persistent://public/default/t"


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def read(data: Path) -> list[str]:
    with BrokerProcess(data, arguments=FEW) as broker:
        ran = ledgerfold("--url", broker.url, "read", "t", "--until-end")
        assert ran.code == 0, ran.err
        return [row["value"] for row in ran.rows]


def rows(ran: Ran) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(ran.out)
    return found


def everything(data: Path) -> dict[str, bytes]:
    """Returns all but the lock, which names its last owner."""
    return {
        str(path.relative_to(data)): path.read_bytes()
        for path in sorted(data.rglob("*"))
        if path.is_file() and path.name != "lock"
    }


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten messages, four entries a ledger; the broker was killed."""
    data = tmp_path_factory.mktemp("written") / "data"
    with BrokerProcess(data, arguments=FEW) as broker:
        for number in range(10):
            ran = ledgerfold("--url", broker.url, "produce", "t", "-k", "k", "-m", f"v{number}")
            assert ran.code == 0, ran.err
        broker.kill()
    return data


@pytest.fixture
def data(written: Path, tmp_path: Path) -> Path:
    return shutil.copytree(written, tmp_path / "data")


def segments(data: Path) -> list[Path]:
    return sorted((data / "ledgers").rglob("*.log"))


def test_an_intact_directory(data: Path) -> None:
    """The exit code is 0, the array is empty, and no byte of the directory changes."""
    before = everything(data)
    ran = ledgerfold("verify", str(data), "-o", "json")
    assert (ran.code, rows(ran)) == (0, [])
    assert "1 topic, 3 ledgers, 3 segments, 10 entries, 10 messages" in ran.err
    assert ledgerfold("repair", str(data), "--yes").code == 0
    assert everything(data) == before


def test_a_damaged_entry_is_reported_and_removed(data: Path) -> None:
    """Tests the report of verify, the plan of repair, its application, and the remaining data."""
    path = segments(data)[0]
    size = path.stat().st_size // 4
    flip(path, 2 * size - 1)
    before = everything(data)
    ran = ledgerfold("verify", str(data), "-o", "json")
    (row,) = rows(ran)
    assert ran.code == 6
    assert row["kind"] == "entry"
    assert row["level"] == "damage"
    assert row["topic"] == TOPIC
    assert row["file"] == str(path.relative_to(data))
    assert size < row["byte"] < 2 * size
    assert "CRC32C" in row["expected"]
    assert "ledgerfold repair" in ran.err
    ran = ledgerfold("repair", str(data), "-o", "table")
    assert ran.code == 6
    assert "1 message lost. Nothing was changed: add --yes" in ran.out
    assert everything(data) == before
    ran = ledgerfold("repair", str(data), "--yes", "-o", "json")
    assert ran.code == 0
    (row,) = rows(ran)
    assert (row["entries"], row["messages_lost"]) == ("1", 1)
    assert ledgerfold("verify", str(data)).code == 0
    assert read(data) == ["v0", *(f"v{number}" for number in range(2, 10))]
    kept = next((data / "repairs").rglob("*.log"))
    assert kept.read_bytes() == before[str(path.relative_to(data))]


def test_the_output_as_a_table(data: Path) -> None:
    """For people: a line each, then the sums."""
    flip(segments(data)[0], 100)
    ran = ledgerfold("verify", str(data), "-o", "table")
    header, line, ending, advice = ran.out.splitlines()
    assert header.split() == [
        "kind",
        "level",
        "topic",
        "ledger",
        "file",
        "byte",
        "expected",
        "found",
    ]
    assert line.startswith("entry")
    assert ending.startswith("1 damaged, 0 notes; 1 topic, ")
    assert advice.startswith("`ledgerfold repair ")


def test_a_read_only_directory_is_verified(data: Path) -> None:
    """A broker says why it cannot serve it; both change nothing."""
    mount = ["mount", "-o", "bind,ro", str(data), str(data)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("needs leave to mount")
    try:
        assert ledgerfold("verify", str(data)).code == 0
        ran = ledgerfold("serve", "--data", str(data), "--listen", "127.0.0.1:0")
        assert ran.code == 1
        assert "ead-only file system" in ran.err
        assert "health of the disk" not in ran.err
    finally:
        subprocess.run(["umount", str(data)], check=True)


def test_missing_files_and_files_in_use(data: Path, tmp_path: Path) -> None:
    """Neither is created, nor opened beside its owner. The remedy fits the command: no test had
    read the advice.
    """
    for verb in ("verify", "repair"):
        ran = ledgerfold(verb, str(tmp_path / "elsewhere"))
        assert (ran.code, ran.out) == (3, "")
        assert f"{tmp_path / 'elsewhere'} does not exist." in ran.err
        assert not (tmp_path / "elsewhere").exists()
        with DirectoryLock(data, "9.9"):
            ran = ledgerfold(verb, str(data))
        assert ran.code == 5
        assert "ledgerfold 9.9" in ran.err
        assert "Stop that process" in ran.err
        assert "--url" not in ran.err


# The metadata's store


def log_of(data: Path) -> Path:
    """RocksDB's log of writes, while it holds some."""
    return max((data / "metadata").glob("*.log"), key=lambda path: path.stat().st_size)


def flip_a_bit_of_the_log(data: Path) -> None:
    log = log_of(data)
    flip(log, log.stat().st_size // 2)


def empty_the_log(data: Path) -> None:
    log_of(data).write_bytes(b"")


def cut_the_log(data: Path) -> None:
    log = log_of(data)
    log.write_bytes(log.read_bytes()[: log.stat().st_size * 2 // 3])


def lose_the_manifest(data: Path) -> None:
    """RocksDB does not open such a store."""
    (data / "metadata" / "CURRENT").write_text("MANIFEST-999999\n")


def lose_all(data: Path) -> None:
    shutil.rmtree(data / "metadata")


HARMS = [flip_a_bit_of_the_log, empty_the_log, cut_the_log, lose_the_manifest, lose_all]


@pytest.mark.parametrize("harm", HARMS, ids=lambda each: each.__name__)
def test_lost_metadata_are_reported_and_restored(data: Path, harm: Callable[[Path], None]) -> None:
    """--yes alone does not restore them; no message of a ledger is lost."""
    harm(data)
    before = everything(data)
    ran = ledgerfold("verify", str(data), "-o", "json")
    assert ran.code == 6
    assert "metadata" in {each["kind"] for each in rows(ran)}
    ran = ledgerfold("repair", str(data), "--yes")
    assert ran.code == 6
    assert "--rebuild-metadata" in ran.err
    assert everything(data) == before
    ran = ledgerfold("repair", str(data), "--yes", "--rebuild-metadata")
    assert ran.code == 6
    assert "Done" in ran.err
    ran = ledgerfold("verify", str(data))
    assert ran.code == 0, ran.err
    (folder,) = (data / "repairs").iterdir()
    kept = everything(folder)
    assert {each for each in before if each.startswith("metadata/")} <= {*kept}
    assert {each for each in before if each.endswith(".log")} <= {*everything(data), *kept}
    assert read(data) == [f"v{number}" for number in range(10)]


def test_a_broker_reports_that_the_metadata_lost_writes(data: Path) -> None:
    """It starts and removes nothing; a read of the topic gets the error."""
    cut_the_log(data)
    before = {path for path in everything(data) if path.startswith("ledgers/")}
    with BrokerProcess(data, arguments=FEW) as broker:
        ran = ledgerfold("--url", broker.url, "read", "t", "--until-end")
        assert ran.code == 6
        assert "repair" in ran.err
        assert "have lost their last writes" in broker.stderr
    assert before <= set(everything(data))


@pytest.mark.parametrize("is_flushed", [False, True])
def test_damage_to_any_byte_of_the_metadata_is_found(tmp_path: Path, is_flushed: bool) -> None:
    """A store of some records: a flipped byte is damage, or the records are the same."""
    folder = tmp_path / "metadata"
    pairs = RocksKeyValue(folder)
    for number in range(4):
        pairs.write({b"key %d" % number: b"value " * 5}, ())
    if is_flushed:
        pairs.close()
    shutil.copytree(folder, tmp_path / "killed")
    folder = tmp_path / "killed"
    good = read_pairs(folder)
    assert (len(good.pairs.scan(b"")), good.damage) == (4, None)
    endings = ("*.sst", "*.log", "MANIFEST-*", "CURRENT")
    paths = [path for ending in endings for path in folder.glob(ending)]
    assert paths
    for path in paths:
        for at in range(0, path.stat().st_size, 17 if is_flushed else 5):
            flip(path, at)
            try:
                found = read_pairs(folder)
                is_same = found.pairs.scan(b"") == good.pairs.scan(b"")
                assert is_same or found.damage is not None, (path, at)
            except Corruption:
                pass
            flip(path, at)
    if not is_flushed:
        pairs.close()


# The document


def test_the_commands_of_the_document_work(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line of its console block, in order, on a directory that is damaged."""
    steps = [step for block in document(RELIABILITY) for step in block.steps]
    commands = [each.command.split()[1:] for each in steps if each.command.startswith("ledgerfold")]
    assert [each[0] for each in commands] == ["verify", "repair", "repair", "verify"]
    flip(segments(data)[0], 100)
    monkeypatch.chdir(data.parent)
    assert [ledgerfold(*each).code for each in commands] == [6, 6, 0, 0]


def test_the_document_lists_every_kind_of_damage() -> None:
    """Tests the kinds of findings."""
    kinds = "metadata record reference unrecorded label file entry order gap sums format"
    notes = "torn-tail torn-copy aside orphan repair"
    for kind in [*kinds.split(), *notes.split()]:
        assert f"`{kind}`" in DOCS, kind
