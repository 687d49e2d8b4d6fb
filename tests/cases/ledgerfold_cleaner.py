"""Ledgerfold's answers to requests about Kafka's cleaner: plans, passes, states, gauges."""

from __future__ import annotations

from typing import Any

import grpc

from ledgerfold.rpc_errors import error_from_rpc
from ledgerfold.v1 import (
    admin_pb2_grpc,
    data_pb2_grpc,
    kafka_pb2,
    kafka_pb2_grpc,
)

Answer = dict[str, Any]
# A pass waits for Spark.
TIMEOUT_S = 120.0
_OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))


class KafkaCalls:
    """A connection to a broker's services, without conversions."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(address, options=_OPTIONS)
        self.admin: Any = admin_pb2_grpc.AdminServiceStub(self._channel)
        self.data: Any = data_pb2_grpc.DataServiceStub(self._channel)
        self.kafka: Any = kafka_pb2_grpc.KafkaServiceStub(self._channel)

    def close(self) -> None:
        self._channel.close()

    def call(self, method: Any, request: object) -> Any:
        """Raises LedgerfoldError."""
        try:
            return method(request, timeout=TIMEOUT_S)
        except grpc.RpcError as error:
            raise error_from_rpc(error) from None


class CleanerAnswers:
    """Methods are named after the operations that they answer."""

    def __init__(self, calls: KafkaCalls) -> None:
        self._call, self._kafka = calls.call, calls.kafka

    def kafka_plan(self, topic: str) -> Answer:
        return {"stats": self._plan(topic)}

    def kafka_map(self, topic: str) -> Answer:
        plan = self._planned(topic, map=True)
        keys = {each.key.decode(): each.offset for each in plan.entries}
        return {
            "stats": {
                "keys": keys,
                "size": plan.map_keys,
                "max": plan.map_keys_max,
                "end": plan.end_offset,
            }
        }

    def _planned(self, topic: str, *, map: bool = False) -> Any:
        request = kafka_pb2.PlanCleaningRequest(topics=[topic], map=map)
        (plan,) = self._call(self._kafka.PlanCleaning, request).plans
        return plan

    def _plan(self, topic: str) -> Answer:
        plan = self._planned(topic)
        return {
            "firstDirty": plan.first_dirty_offset,
            "firstUncleanable": plan.first_uncleanable_offset,
            "bound": plan.bound_offset,
            "boundBy": plan.bound_by,
            "clean": plan.clean_bytes,
            "cleanable": plan.cleanable_bytes,
            "total": plan.clean_bytes + plan.cleanable_bytes,
            "ratio": plan.ratio,
            "overdue": plan.is_overdue,
            "delay": plan.delay_ms,
            "repairs": plan.repairs_checkpoint,
            "eligible": plan.is_eligible,
            "whyNot": plan.why_not,
        }

    def kafka_clean(self, topic: str = "") -> Answer:
        turn = self._call(self._kafka.Clean, kafka_pb2.CleanTurnRequest(topic=topic))
        stats = turn.stats
        return {
            "log": turn.topic or None,
            "firstDirty": turn.plan.first_dirty_offset,
            "ratio": turn.plan.ratio,
            "end": turn.end_offset,
            "checkpoint": turn.checkpoint,
            "aborted": turn.was_aborted,
            "failure": turn.failure,
            "deleted": turn.deleted_segments,
            "mapMessagesRead": stats.map_messages_read,
            "messagesRead": stats.messages_read,
            "messagesWritten": stats.messages_written,
            "bytesRead": stats.bytes_read,
            "bytesWritten": stats.bytes_written,
            "invalid": stats.invalid_messages_read,
            "mapKeys": stats.map_keys,
            "mapSlots": stats.map_slots,
        }

    def kafka_retention(self) -> Answer:
        told = self._call(self._kafka.RunRetention, kafka_pb2.RunRetentionRequest())
        return {"deleted": told.deleted_segments}

    def kafka_cleaner(self, topic: str) -> Answer:
        """`topic`: the topic whose state is returned."""
        told = self._call(self._kafka.GetCleaner, kafka_pb2.GetCleanerRequest())
        return {
            "stats": {
                "gauges": {name.rpartition("name=")[2]: it for name, it in told.gauges.items()},
                "file": told.checkpoint_file,
                "state": told.states.get(topic, ""),
                "uncleanable": told.uncleanable.get(topic, ""),
            }
        }

    def kafka_set_cleaning(
        self,
        topic: str,
        checkpoint: int | None = None,
        uncleanable: str | None = None,
        action: str | None = None,
    ) -> None:
        request = kafka_pb2.SetCleaningRequest(
            topic=topic, checkpoint=checkpoint, uncleanable_reason=uncleanable, action=action
        )
        self._call(self._kafka.SetCleaning, request)
