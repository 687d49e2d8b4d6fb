"""The readers of a Kafka topic: `python -m tests.torture.kafka_reading TASK`.

A follower stays open over restarts of the broker, as in tests/torture/reading.py, and a pass reads
the whole log, from its start to where its end was: every record in its place, each once, with the
offset that it was given.

Commands and reports are those of tests/torture/reading.py; a pass reports, too, {"event":
"offsets", "producer": ..., "pairs": ...}: of each record its sequence id and its offset, packed.
"""

from __future__ import annotations

from array import array
from base64 import b64encode
from contextlib import closing

from ledgerfold.broker.client import Client, Message, MessageId
from ledgerfold.broker.client.administration.admin import Admin
from tests.torture.child import Child
from tests.torture.kafka_producing import SEQUENCE
from tests.torture.messages import Messages
from tests.torture.reading import Follower, Passes, report_problems, serve
from tests.torture.seen import Seen, packed


def seen_by(child: Child) -> dict[str, Messages]:
    return {name: Messages(name, child.task["seed"]) for name in child.task["producers"]}


class KafkaOrigins(Seen):
    def origin(self, message: Message) -> tuple[str, int]:
        """Returns the sequence id in its header, and the producer in its key."""
        name = message.partition_key().rpartition("/")[0]
        return name, int(message.properties().get(SEQUENCE, -1))


class KafkaSeen(KafkaOrigins):
    """`offsets`: pairs of sequence id and offset, by producer."""

    def __init__(self, child: Child) -> None:
        super().__init__(seen_by(child))
        self.offsets = {name: array("q") for name in child.task["producers"]}

    def take(self, message: Message) -> None:
        super().take(message)
        name, sequence_id = self.origin(message)
        if name in self.offsets:
            self.offsets[name].extend((sequence_id, message.offset() or 0))


class KafkaFollower(Follower):
    def __init__(self, child: Child, client: Client) -> None:
        super().__init__(child, client, is_compacted=False)
        self.seen, self.what = KafkaOrigins(seen_by(child)), "kafka follower"


class KafkaPasses(Passes):
    def _carry_out(self, number: int) -> None:
        seen, topic = KafkaSeen(self._child), self._child.task["topic"]
        with closing(Admin(self._child.task["url"])) as admin:
            end = admin.kafka.describe_log(topic).log_end_offset
        with closing(self._client.create_reader(topic, MessageId.earliest)) as reader:
            for message in reader:
                seen.take(message)
                if (message.offset() or 0) >= end - 1:
                    break
        report_problems(self._child, "pass", seen)
        for name, pairs in seen.offsets.items():
            self._child.report("offsets", producer=name, pairs=b64encode(pairs.tobytes()).decode())
        read = f"{seen.count} records up to {seen.last_id}, the end was {end}"
        self._child.report("pass", number=number, latest=packed(seen.latest), read=read)


def main() -> None:
    child = Child()
    client = child.client()
    serve(child, [KafkaFollower(child, client)], KafkaPasses(child, client))


if __name__ == "__main__":
    main()
