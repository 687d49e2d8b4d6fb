"""What an administrator asks that reads through a whole topic, and changes nothing.

The part of Admin (admin.py) whose calls have no time limit of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import grpc

from ledgerfold.broker.client.message_id import MessageId
from ledgerfold.rpc_errors import error_from_rpc
from ledgerfold.storage.decoded import key_bytes
from ledgerfold.v1 import explain_pb2, records_pb2, what_if_pb2


class Outlook:
    """`_admin`: the stub of AdminService."""

    _admin: Any

    def explain(
        self,
        topic: str,
        *,
        key: bytes | str | None = None,
        message_id: MessageId | None = None,
        timeout_seconds: float | None = None,
    ) -> explain_pb2.ExplainResponse:
        """What compaction did and will do with the versions of a key, or with one message.

        Without either: with the messages that have no key. A key that was given as bytes counts in
        base64, as its messages show it. The broker reads the keys of the whole topic for it, so
        there is no time limit but the one given here.
        """
        request = explain_pb2.ExplainRequest(topic=topic)
        if message_id is not None:
            request.message_id.CopyFrom(message_id.to_record())
        elif key is not None:
            request.key = key_bytes(key)
        else:
            request.null_key = True
        try:
            answer: explain_pb2.ExplainResponse = self._admin.Explain(
                request, timeout=timeout_seconds
            )
        except grpc.RpcError as error:
            raise error_from_rpc(error) from None
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
        """What each strategy would leave of the next run's input, without a change; of a
        partitioned topic for each partition. No strategy: the topic's own.

        `differences_max`: lists so many keys that the strategies, two at least, leave with other
        messages.
        `replays`: times to compact, tried on the topic's history under the first strategy.
        `trials`: of a Kafka topic, which has nothing of that, settings by Kafka's names to replay
        its history under. The whole topic's keys are read for it, so there is no time limit but
        the one given here.
        """
        request = what_if_pb2.WhatIfRequest(
            topic=topic,
            strategies=strategies,
            differences_max=differences_max,
            replays=replays,
            trials=[what_if_pb2.CleaningTrial(config=each) for each in trials],
        )
        try:
            return list(self._admin.WhatIf(request, timeout=timeout_seconds).topics)
        except grpc.RpcError as error:
            raise error_from_rpc(error) from None
