"""Ledgerfold's answers to requests about topics, policies and compaction: administration."""

from __future__ import annotations

from typing import Any

from ledgerfold.broker.client import MessageId
from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.v1.admin_pb2 import CompactionStatus as Status
from ledgerfold.v1.admin_pb2 import GetCompactionStatusResponse
from ledgerfold.v1.records_pb2 import CompactionStrategy, Emulation, Policies
from tests.cases.ledgerfold_data import id_of, position
from tests.support.waiting import wait_until

_RUN_TIMEOUT_S = 100
_MB = 1024 * 1024
_MINUTE_MS = 60_000
Answer = dict[str, Any]


class AdminAnswers:
    """Methods are named after the operations that they answer."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    def namespace(self, namespace: str) -> Answer:
        self._admin.create_namespace(namespace)
        return {}

    def profile(self, namespace: str, profile: str) -> Answer:
        self._set(namespace=namespace, emulation=Emulation(profile=profile))
        return {}

    def emulate(self, namespace: str, field: str, value: bool) -> Answer:
        fields: dict[str, Any] = {field: value}
        self._set(namespace=namespace, emulation=Emulation(**fields))
        return {}

    def retain_null_key(self, namespace: str, retain: bool) -> Answer:
        self._set(namespace=namespace, retain_null_key=retain)
        return {}

    def strategy(
        self,
        topic: str = "",
        namespace: str = "",
        order: str = "",
        settings: dict[str, str] | None = None,
        remove: bool = False,
    ) -> Answer:
        if remove:
            self._remove(topic, namespace, "compaction_strategy")
        else:
            chosen = CompactionStrategy(name=order, settings=settings)
            self._set(topic, namespace, compaction_strategy=chosen)
        return {}

    def create(self, topic: str, partitions: int | None = None) -> Answer:
        if partitions is None:
            self._admin.create_topic(topic)
        else:
            self._admin.create_partitioned_topic(topic, partitions)
        return {}

    def grow(self, topic: str, partitions: int) -> Answer:
        self._admin.update_partitioned_topic(topic, partitions)
        return {}

    def delete(self, topic: str, force: bool = False) -> Answer:
        if self._admin.partitioned_topic_metadata(topic)["partitions"]:
            self._admin.delete_partitioned_topic(topic, force=force)
        else:
            self._admin.delete_topic(topic, force=force)
        return {}

    def unload(self, topic: str) -> Answer:
        self._admin.unload(topic)
        return {}

    def trim(self, topic: str) -> Answer:
        self._admin.trim(topic)
        return {}

    def truncate(self, topic: str) -> Answer:
        self._admin.truncate(topic)
        return {}

    def terminate(self, topic: str) -> Answer:
        self._admin.terminate(topic)
        return {}

    def stats(self, topic: str) -> Answer:
        return {"stats": self._admin.stats(topic)}

    def internal(self, topic: str) -> Answer:
        return {"stats": self._admin.internal_stats(topic)}

    def id_by_time(self, topic: str, timestamp: int) -> Answer:
        return {"id": id_of(self._admin.message_id_by_timestamp(topic, timestamp))}

    def subscribe(self, topic: str, sub: str, position: str) -> Answer:
        start = MessageId.latest if position == "latest" else MessageId.earliest
        self._admin.create_subscription(topic, sub, start)
        return {}

    def unsubscribe(self, topic: str, sub: str) -> Answer:
        self._admin.unsubscribe(topic, sub, force=True)
        return {}

    def expire(self, topic: str, seconds: int, sub: str = "") -> Answer:
        self._admin.expire_messages(topic, sub, seconds * 1000)
        return {}

    def reset_cursor(self, topic: str, sub: str, to: Any) -> Answer:
        self._admin.reset_cursor(topic, sub, position(to))
        return {}

    def compact(self, topic: str) -> Answer:
        self._admin.trigger_compaction(topic)
        *_, last = self._admin.watch_compaction(topic, timeout_seconds=_RUN_TIMEOUT_S)
        return _status(last)

    def trigger(self, topic: str) -> Answer:
        """Returns when the run's range is fixed: messages published later are not in it."""

        def is_settled() -> bool:
            found = next(self._admin.watch_compaction(topic))
            return all(
                each.run.ledger_id >= 0 or each.status != Status.COMPACTION_STATUS_RUNNING
                for each in found.partitions or [found]
            )

        self._admin.trigger_compaction(topic)
        wait_until(is_settled, "the run has a ledger")
        return {}

    def cancel(self, topic: str) -> Answer:
        self._admin.cancel_compaction(topic)
        return {}

    def compaction_status(self, topic: str) -> Answer:
        return _status(self._admin.compaction_status(topic))

    def threshold(
        self, topic: str = "", namespace: str = "", bytes: int = 0, remove: bool = False
    ) -> Answer:
        if remove:
            self._remove(topic, namespace, "compaction_threshold_bytes")
        else:
            self._set(topic, namespace, compaction_threshold_bytes=bytes)
        return {}

    def get_threshold(self, topic: str = "", namespace: str = "", applied: bool = False) -> Answer:
        found = self._admin.policies(topic=topic, namespace=namespace, applied=applied)
        is_set = found.HasField("compaction_threshold_bytes")
        return {"bytes": found.compaction_threshold_bytes if is_set else None}

    def retention(
        self, topic: str = "", namespace: str = "", minutes: int = 0, megabytes: int = 0
    ) -> Answer:
        self._set(
            topic,
            namespace,
            retention_ms=minutes if minutes < 0 else minutes * _MINUTE_MS,
            retention_bytes=megabytes if megabytes < 0 else megabytes * _MB,
        )
        return {}

    def ttl(self, namespace: str, seconds: int) -> Answer:
        self._set(namespace=namespace, message_ttl_ms=seconds * 1000)
        return {}

    def _set(self, topic: str = "", namespace: str = "", **values: Any) -> None:
        self._admin.update_policies(topic=topic, namespace=namespace, values=Policies(**values))

    def _remove(self, topic: str, namespace: str, name: str) -> None:
        self._admin.update_policies(topic=topic, namespace=namespace, remove=[name])


def _status(status: GetCompactionStatusResponse) -> Answer:
    name = Status.Name(status.status).removeprefix("COMPACTION_STATUS_")
    return {"status": name, "lastError": status.last_error}
