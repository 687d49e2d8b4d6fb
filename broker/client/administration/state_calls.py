"""The calls of Admin for tests (broker/client/administration/admin.py): about the whole state of a
broker, and about injected faults.

They need a broker that allows them: `serve --allow-reset` or `--test-clock`; `--allow-faults`.
"""

from __future__ import annotations

from ledgerfold.broker.client.administration.channel import Calls
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.v1 import admin_pb2, records_pb2
from ledgerfold.v1.admin_pb2 import CompactionPhase, Fault, FaultKind, FaultOperation

_Enum = type[FaultKind] | type[FaultOperation] | type[CompactionPhase]
_KIND, _OPERATION, _PHASE = "FAULT_KIND_", "FAULT_OPERATION_", "COMPACTION_PHASE_"


class StateCalls(Calls):
    """The calls about everything that a broker has."""

    def reset(self) -> int:
        """Deletes everything: topics, schemas, policies, namespaces, tenants. Ends all runs.

        Connected clients reconnect, as after a deletion. Returns the number of deleted topics,
        partitions included. Raises NotAllowed.
        """
        return int(self._call(admin_pb2.ResetRequest()).topics)

    def save_snapshot(self, name: str) -> records_pb2.Snapshot:
        """Saves everything under a name of 1 to 64 letters, digits, "-" and "_".

        Connected clients reconnect, and runs in progress are ended. Raises NotAllowed,
        SnapshotExists, InvalidRequest.
        """
        saved: records_pb2.Snapshot = self._call(admin_pb2.SaveSnapshotRequest(name=name)).snapshot
        return saved

    def list_snapshots(self) -> list[records_pb2.Snapshot]:
        """Returns the snapshots by name."""
        return list(self._call(admin_pb2.ListSnapshotsRequest()).snapshots)

    def restore_snapshot(self, name: str) -> records_pb2.Snapshot:
        """Replaces everything by the contents of the snapshot, with the same message ids.

        The snapshot stays. Connected clients reconnect, as after a deletion. Raises NotAllowed,
        SnapshotNotFound.
        """
        request = admin_pb2.RestoreSnapshotRequest(name=name)
        restored: records_pb2.Snapshot = self._call(request).snapshot
        return restored

    def delete_snapshot(self, name: str) -> None:
        """Deletes a snapshot. Raises NotAllowed, SnapshotNotFound."""
        self._call(admin_pb2.DeleteSnapshotRequest(name=name))


def fault_words(fault: Fault) -> tuple[str, str, str]:
    """Returns a rule's kind, operation and phase as words; "" for one that it does not have.

    >>> fault_words(Fault(kind="FAULT_KIND_FAIL_COMPACTION", phase="COMPACTION_PHASE_TWO"))
    ('fail-compaction', '', 'two')
    """
    return (
        _word(FaultKind.Name(fault.kind), _KIND),
        _word(FaultOperation.Name(fault.operation), _OPERATION),
        _word(CompactionPhase.Name(fault.phase), _PHASE),
    )


class FaultCalls(Calls):
    """The calls about fault rules. All raise NotAllowed unless the broker allows faults."""

    def add_fault(
        self,
        kind: str,
        operation: str = "",
        *,
        topic: str = "",
        namespace: str = "",
        producer: str = "",
        subscription: str = "",
        consumer: str = "",
        error: str = "",
        delay_ms: int = 0,
        keeps_connection: bool = False,
        phase: str = "",
        next: int = 0,
        every: int = 0,
        probability: float = 0,
        seed: int = 0,
    ) -> Fault:
        """Adds a rule, and returns it with its id. docs/TESTING.md describes the kinds.

        `kind`: "fail", "disconnect", "delay", "lose-receipt", "disk-full" or "fail-compaction".
        `operation`: "create-producer", "publish", "subscribe", "read" or "lookup". `error`: the
        name of a class of `ledgerfold.errors`. `phase`: "one", "two" or "commit". With the
        name of a topic, a namespace, a producer and so on, the rule hits only those. `every`: with
        100, it hits each hundredth message; 0: each message. `next`: the number of hits after which
        it ends; 0: it never does. `probability`, from 0 to 1: it hits entries at random, and for
        the same `seed` always the same ones.
        Raises InvalidRequest, LimitExceeded.
        """
        fault = Fault(
            kind=_value(FaultKind, _KIND, kind),
            operation=_value(FaultOperation, _OPERATION, operation),
            error=error,
            delay_ms=delay_ms,
            keeps_connection=keeps_connection,
            phase=_value(CompactionPhase, _PHASE, phase),
            topic=topic,
            namespace=namespace,
            producer=producer,
            subscription=subscription,
            consumer=consumer,
            next=next,
            every=every,
            probability=probability,
            seed=seed,
        )
        added: Fault = self._call(admin_pb2.AddFaultRequest(fault=fault)).fault
        return added

    def list_faults(self) -> list[Fault]:
        """Returns all rules, oldest first, with the numbers of their hits."""
        return list(self._call(admin_pb2.ListFaultsRequest()).faults)

    def remove_fault(self, fault_id: int) -> Fault:
        """Removes a rule, and returns it with its hits. Raises FaultNotFound.

        Operations that it delays continue at once.
        """
        removed: Fault = self._call(admin_pb2.RemoveFaultRequest(id=fault_id)).fault
        return removed

    def clear_faults(self) -> int:
        """Removes all rules. Returns their number."""
        return int(self._call(admin_pb2.ClearFaultsRequest()).faults)


def _word(name: str, prefix: str) -> str:
    word = name.removeprefix(prefix).lower().replace("_", "-")
    return "" if word == "unspecified" else word


def _value(enum: _Enum, prefix: str, word: str) -> str:
    """Returns the name of the enum's value that a word means. Raises InvalidRequest."""
    words = {_word(name, prefix): name for name in enum.keys()}  # noqa: SIM118 - no mapping
    if word not in words:
        known = ", ".join(each for each in words if each)
        raise InvalidRequest(f"{word[:200]!r} is not one of {known}.")
    return words[word]
