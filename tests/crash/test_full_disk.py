"""A broker on a full disk: refused operations, others that continue, and the recovery when there is
room.

The disk is real, and small (tests/support/small_disk.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from ledgerfold.broker.client import Client, Consumer, InitialPosition, Message, MessageId
from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.rpc_errors import error_from_rpc
from ledgerfold.storage.errors import DiskFailure
from ledgerfold.v1 import data_pb2
from ledgerfold.v1.records_pb2 import RUN_STATE_ERROR, RUN_STATE_SUCCESS, RunRecord
from tests.support.broker_process import BrokerFailed, BrokerProcess
from tests.support.ledgers import is_segment
from tests.support.small_disk import CannotMount, SmallDisk
from tests.support.waiting import RUN_S, WAIT_MS, WAIT_S

BIG = bytes(256 * 1024)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    try:
        with SmallDisk(tmp_path / "disk") as mounted:
            yield mounted
    except CannotMount as error:
        pytest.skip(f"needs leave to mount a tmpfs: {error}")


class Setting:
    """A broker whose data are on the small disk, and its clients."""

    def __init__(self, disk: SmallDisk, compactor: str = "off") -> None:
        self.disk = disk
        self.broker = BrokerProcess(
            disk.path / "data",
            arguments=("--compactor", compactor, "--allow-reset"),
            log=disk.path.with_name("ledgerfold.broker.log.log"),
        )
        self._clients: list[Client] = []
        # By topic: the acknowledged messages.
        self.acknowledged: dict[str, list[bytes]] = {}

    def client(self) -> Client:
        client = Client(self.broker.url, operation_timeout_seconds=WAIT_S)
        self._clients.append(client)
        return client

    def admin(self) -> Admin:
        return Admin(self.broker.url)

    def publish(self, topic: str, *values: bytes) -> None:
        """Publishes one by one, each acknowledged. Raises the broker's error."""
        producer = self.client().create_producer(topic)
        for value in values:
            known = self.acknowledged.setdefault(topic, [])
            producer.send(value, partition_key=f"k{len(known)}")
            known.append(value)

    def publish_until_full(self, topic: str) -> DiskFailure:
        """Returns the error that ended it."""
        self.disk.fill(leave_bytes=2 * len(BIG))
        with pytest.raises(DiskFailure) as failure:
            self.publish(topic, *[BIG] * 20)
        return failure.value

    def use_up_metadata(self, admin: Admin) -> list[str]:
        """Fills the last block of RocksDB's log, too, with subscriptions of "spare"; returns their
        names.
        """
        self.disk.fill()
        created: list[str] = []

        def create_some() -> None:
            for number in range(1000):
                admin.create_subscription("spare", f"s-{number:03d}")
                created.append(f"s-{number:03d}")

        with pytest.raises(DiskFailure, match="Free space"):
            create_some()
        return created

    def check_readable(self, *topics: str) -> None:
        """Checks that exactly the acknowledged messages can be read."""
        for topic in topics:
            reader = self.client().create_reader(topic, MessageId.earliest)
            found = [message.data() for message in reader]
            assert found == self.acknowledged[topic], topic

    def forget(self, topic: str) -> None:
        """Nothing of the topic is left; "": of any."""
        for each in (topic,) if topic else self.acknowledged:
            self.acknowledged[each] = []

    def subscribe(self, topic: str) -> Consumer:
        return self.client().subscribe(topic, "s", initial_position=InitialPosition.Earliest)

    def close(self) -> None:
        for client in self._clients:
            client.shutdown()
        self.broker.close()


@pytest.fixture
def setting(disk: SmallDisk) -> Iterator[Setting]:
    made = Setting(disk)
    yield made
    made.close()


def values(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def receive(consumer: Consumer, count: int) -> list[Message]:
    return [consumer.receive(WAIT_MS) for _ in range(count)]


def raw_publish(url: str, topic: str) -> grpc.RpcError:
    """Opens a stream with the bare protocol."""
    with grpc.insecure_channel(url) as channel:
        method: Any = channel.stream_stream
        call = method("/ledgerfold.v1.DataService/Publish")
        opening = data_pb2.PublishRequest(open=data_pb2.PublishOpen(topic=topic))
        with pytest.raises(grpc.RpcError) as failure:
            list(call(iter([opening.SerializeToString()]), timeout=WAIT_S))
        return failure.value


def test_publishers_are_refused_and_readers_are_served(setting: Setting) -> None:
    """The error has code, reason and remedy; later publishing works again by itself."""
    setting.publish("t", *values(20))
    setting.publish("idle", *values(3))
    setting.broker.restart()
    error = setting.publish_until_full("t")
    assert error.reason == "DISK_FAILURE"
    assert "No space left" in error.message
    assert "Free space" in error.message
    with setting.admin() as admin:
        setting.use_up_metadata(admin)
        with pytest.raises(DiskFailure):
            admin.create_topic("new")
    refused = raw_publish(setting.broker.url, "t")
    assert refused.code() is grpc.StatusCode.INTERNAL
    assert isinstance(error_from_rpc(refused), DiskFailure)
    # "idle" was not loaded when the disk became full.
    setting.check_readable("t", "idle")
    setting.disk.free()
    setting.publish("t", *values(3))
    setting.publish("idle", *values(3))
    setting.publish("new", *values(3))
    setting.check_readable("t", "idle", "new")
    setting.broker.restart()
    setting.check_readable("t", "idle", "new")


def test_an_open_reader_continues(setting: Setting) -> None:
    """It gets no error from a full disk, and gets the messages that are published when there is
    room again.
    """
    setting.publish("t", *values(20))
    reader = setting.client().create_reader("t", MessageId.earliest, receiver_queue_size=2)
    seen = [reader.read_next(WAIT_MS).data() for _ in range(5)]
    setting.publish_until_full("t")
    seen += [message.data() for message in reader]
    assert seen == setting.acknowledged["t"]
    setting.disk.free()
    setting.publish("t", b"last")
    assert reader.read_next(WAIT_MS).data() == b"last"


def test_a_consumer_continues(setting: Setting) -> None:
    """Its acknowledgements become durable when there is room: no acknowledged message
    returns then.
    """
    setting.publish("t", *values(20))
    consumer = setting.subscribe("t")
    setting.publish_until_full("t")
    with setting.admin() as admin:
        setting.use_up_metadata(admin)
    messages = receive(consumer, 20)
    for message in messages[:15]:
        consumer.acknowledge(message)
    assert [message.data() for message in messages] == values(20)
    setting.disk.free()
    consumer.close()
    setting.broker.kill()
    setting.broker.start()
    assert [message.data() for message in receive(setting.subscribe("t"), 5)] == values(5, 15)


def test_metadata_writes_work_again_when_there_is_room(setting: Setting) -> None:
    """RocksDB alone would refuse all later writes. A failed write has no effect, not even after
    kill -9.
    """
    setting.publish("t", *values(5))
    setting.publish("spare", b"1")
    with setting.admin() as admin:
        created = setting.use_up_metadata(admin)
        assert admin.list_subscriptions("spare") == created
        setting.disk.free()
        assert admin.list_subscriptions("spare") == created
        admin.create_subscription("spare", "t-after")
    setting.broker.kill()
    setting.broker.start()
    with setting.admin() as admin:
        assert admin.list_subscriptions("spare") == [*created, "t-after"]
    setting.check_readable("t")


def test_an_operator_may_unload_the_topic(setting: Setting) -> None:
    """Unloading may need more room than there is, and does no harm."""
    setting.publish("t", *values(5))
    setting.publish_until_full("t")
    with setting.admin() as admin:
        setting.use_up_metadata(admin)
        with contextlib.suppress(DiskFailure):
            admin.unload("t")
        setting.check_readable("t")
        setting.disk.free()
        admin.unload("t")
    setting.publish("t", b"last")
    setting.check_readable("t")


def test_a_snapshot_is_refused_as_a_publish_is(setting: Setting) -> None:
    setting.publish("t", *values(5))
    setting.publish_until_full("t")
    with setting.admin() as admin:
        setting.use_up_metadata(admin)
        with pytest.raises(DiskFailure):
            admin.save_snapshot("s")
        setting.disk.free()
        admin.save_snapshot("s")
    setting.check_readable("t")


FREEING: dict[str, Callable[[Admin], object]] = {
    "delete": lambda admin: admin.delete_topic("t", force=True),
    "delete-partitioned": lambda admin: admin.delete_partitioned_topic("p", force=True),
    "truncate": lambda admin: admin.truncate("t"),
    "reset": lambda admin: admin.reset(),
}


@pytest.mark.parametrize("name", FREEING)
def test_deleting_needs_no_free_space(setting: Setting, name: str) -> None:
    """Also on a disk that accepts no metadata any more. The freed space can be used by all."""
    topic = "p-partition-0" if name == "delete-partitioned" else "t"
    with setting.admin() as admin:
        admin.create_partitioned_topic("p", 2)
        setting.publish("other", *values(5))
        setting.publish("spare", b"1")
        setting.publish(topic, *[BIG] * 80)
        setting.publish_until_full(topic)
        setting.use_up_metadata(admin)
        FREEING[name](admin)
    setting.forget("" if name == "reset" else topic)
    setting.publish("other", *values(5))
    if topic == "t":
        setting.publish("t", b"new")
    setting.check_readable("other", "spare", *({"t"} & {topic}))
    assert (setting.broker.data_dir / "reserve").stat().st_size > 0, "For the next time."
    setting.broker.kill()
    setting.broker.start()
    setting.check_readable("other", "spare", *({"t"} & {topic}))


def test_a_topic_whose_write_failed_is_truncated_without_a_reserve(tmp_path: Path) -> None:
    """A small disk has no reserve: what the failed write left is enough."""
    try:
        with SmallDisk(tmp_path / "disk", size_mb=15) as disk:
            setting = Setting(disk)
            try:
                with pytest.raises(DiskFailure):
                    setting.publish("t", *[BIG] * 80)
                assert not (setting.broker.data_dir / "reserve").exists()
                with setting.admin() as admin:
                    admin.truncate("t")
                setting.forget("t")
                setting.publish("t", b"new")
                setting.check_readable("t")
            finally:
                setting.close()
    except CannotMount as error:
        pytest.skip(f"needs leave to mount a tmpfs: {error}")


def started(broker: BrokerProcess) -> str:
    """Starts a broker; returns its output if it could not start."""
    try:
        broker.start()
    except BrokerFailed as failure:
        return str(failure)
    return ""


@pytest.mark.parametrize("end", [BrokerProcess.kill, BrokerProcess.stop])
def test_a_start_on_a_full_disk_serves_or_states_the_reason(
    setting: Setting, end: Callable[[BrokerProcess], object]
) -> None:
    """A start loses no acknowledged message."""
    setting.publish("t", *values(20))
    setting.publish_until_full("t")
    setting.disk.fill()
    assert not end(setting.broker), "A clean end is a clean end."
    setting.disk.fill()
    why_not = started(setting.broker)
    if why_not:
        assert setting.broker.returncode == 1
        assert "No space left" in why_not
        assert "Free space" in why_not
        setting.disk.free()
        setting.broker.start()
    setting.check_readable("t")
    setting.disk.free()
    setting.publish("t", b"last")
    setting.check_readable("t")


@pytest.mark.parametrize("name", FREEING)
def test_a_broker_killed_on_a_full_disk_starts_again(setting: Setting, name: str) -> None:
    """Repeatedly: the reserve for deletions is enough to start."""
    topic = "p-partition-0" if name == "delete-partitioned" else "t"
    with setting.admin() as admin:
        admin.create_partitioned_topic("p", 2)
        setting.publish("other", *values(5))
        setting.publish(topic, *[BIG] * 80)
        setting.publish_until_full(topic)
        setting.use_up_metadata(admin)
    setting.disk.fill()
    for _ in range(3):
        setting.broker.kill()
        setting.broker.start()
        setting.check_readable("other", topic)
    with setting.admin() as admin:
        FREEING[name](admin)
    setting.forget("" if name == "reset" else topic)
    setting.publish("other", *values(5))
    setting.check_readable("other", *({"t"} & {topic}))


def test_a_start_on_a_disk_filled_by_data_can_be_repeated(setting: Setting) -> None:
    """A disk filled by the data themselves: a broker that is killed on it once more starts, too."""
    with setting.admin() as admin:
        setting.publish("other", *values(5))
        setting.publish("t", *[BIG] * 80)
        setting.publish_until_full("t")
        setting.use_up_metadata(admin)
    for number in range(4):
        setting.disk.fill()
        setting.broker.kill()
        setting.broker.start()
        with contextlib.suppress(DiskFailure):
            setting.publish(f"new-{number}", *[BIG] * 40)
    setting.disk.fill()
    setting.broker.kill()
    setting.broker.start()
    setting.check_readable("other", "t")
    with setting.admin() as admin:
        admin.delete_topic("t", force=True)
    setting.publish("other", *values(5))
    setting.check_readable("other")


# A compaction


def compact(setting: Setting) -> RunRecord:
    """Compacts to the end."""
    with setting.admin() as admin:
        admin.trigger_compaction("t")
        for _ in admin.watch_compaction("t", timeout_seconds=RUN_S):
            pass
        return admin.runs("t", limit=1)[0]


def compacted_view(setting: Setting) -> list[bytes]:
    reader = setting.client().create_reader("t", MessageId.earliest, is_read_compacted=True)
    return [message.data() for message in reader]


def files(setting: Setting) -> set[str]:
    root = setting.broker.data_dir / "ledgers"
    return {str(path.relative_to(root)) for path in root.rglob("*") if is_segment(path.name)}


@pytest.mark.spark
@pytest.mark.slow
def test_a_compaction_without_room_fails_and_changes_nothing(disk: SmallDisk, worker: str) -> None:
    """Its record has the reason, the view is the old one, no file remains; with room it
    succeeds.
    """
    setting = Setting(disk, compactor=worker)
    try:
        setting.broker.wait_for_compactor()
        setting.publish("t", *values(3))
        assert compact(setting).state == RUN_STATE_SUCCESS
        setting.publish("t", *[BIG] * 40)
        view, before = compacted_view(setting), files(setting)
        disk.fill(leave_bytes=8 * len(BIG))
        run = compact(setting)
        assert run.state == RUN_STATE_ERROR
        assert "No space left" in run.error_message
        assert "Free space" in run.error_message
        assert compacted_view(setting) == view
        assert files(setting) == before
        setting.check_readable("t")
        disk.free()
        assert compact(setting).state == RUN_STATE_SUCCESS
        assert compacted_view(setting) == setting.acknowledged["t"]
    finally:
        setting.close()
