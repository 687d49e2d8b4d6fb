"""Read-only analysis calls: explain and what-if.

The part of Admin (admin.py) whose calls read a whole topic and have no default timeout.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ledgerfold.broker.client.administration.channel import Calls
from ledgerfold.broker.client.messages.message_id import MessageId
from ledgerfold.storage.decoded import key_bytes
from ledgerfold.v1 import explain_pb2, records_pb2, what_if_pb2


class AnalysisCalls(Calls):
    """The analysis calls."""

    def explain(
        self,
        topic: str,
        *,
        key: bytes | str | None = None,
        message_id: MessageId | None = None,
        timeout_seconds: float | None = None,
    ) -> explain_pb2.ExplainResponse:
        """Explains the past and future compaction of a key's versions, or of one message.

        Without `key` and `message_id`: of the messages without a key. A key that was given as bytes
        is compared in base64, as its messages show it. The broker reads the keys of the whole
        topic, so the only time limit is `timeout_seconds`.
        """
        request = explain_pb2.ExplainRequest(topic=topic)
        if message_id is not None:
            request.message_id.CopyFrom(message_id.to_record())
        elif key is not None:
            request.key = key_bytes(key)
        else:
            request.null_key = True
        answer: explain_pb2.ExplainResponse = self._call(request, timeout_seconds)
        return answer

    def what_if(
        self,
        topic: str,
        strategies: Iterable[records_pb2.CompactionStrategy] = (),
        *,
        differences_max: int = 0,
        replays: Iterable[what_if_pb2.ReplaySetting] = (),
        trials: Iterable[Mapping[str, str]] = (),
        timeout_seconds: float | None = None,
    ) -> list[what_if_pb2.TopicWhatIf]:
        """Computes what the next compaction would keep with each strategy, and changes nothing.

        Returns a result for each partition, or one for a topic without partitions.

        `strategies`: by default the topic's own. `differences_max`: with two strategies or more,
        the number of keys to list for which they keep different messages. `replays`: schedules of
        compactions, which are applied to the topic's history with the first strategy. `trials`:
        only for a Kafka topic, which supports no other argument: settings by Kafka's names, which
        are applied to its history. The broker reads the keys of the whole topic, so the only time
        limit is `timeout_seconds`.
        """
        request = what_if_pb2.WhatIfRequest(
            topic=topic,
            strategies=strategies,
            differences_max=differences_max,
            replays=replays,
            trials=[what_if_pb2.CleaningTrial(config=each) for each in trials],
        )
        return list(self._call(request, timeout_seconds).topics)
