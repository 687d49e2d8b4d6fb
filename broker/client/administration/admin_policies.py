"""The policy calls of Admin (broker/client/administration/admin.py).

>>> from ledgerfold.broker.client.administration.admin import Admin
>>> with Admin("127.0.0.1:7650") as admin:
...     admin.create_namespace("public/lab")
...     admin.set_compaction_strategy("keep-n", {"n": 3}, namespace="public/lab")
...     print(admin.compaction_strategy(namespace="public/lab").name)
keep-n
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ledgerfold.broker.client.administration.channel import Calls
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.v1 import admin_pb2, records_pb2

_STRATEGY = "compaction_strategy"


class PolicyCalls(Calls):
    """The policy calls. Each takes one topic or one namespace."""

    def policies(
        self, *, topic: str = "", namespace: str = "", applied: bool = False
    ) -> records_pb2.Policies:
        """Returns the policies set on the topic or namespace; `applied`: including inherited
        ones.
        """
        request = admin_pb2.GetPoliciesRequest(scope=_scope(topic, namespace), applied=applied)
        policies: records_pb2.Policies = self._call(request).policies
        return policies

    def update_policies(
        self,
        *,
        topic: str = "",
        namespace: str = "",
        values: records_pb2.Policies | None = None,
        remove: Iterable[str] = (),
    ) -> None:
        """Sets the fields present in `values` and removes those in `remove`; others are
        unchanged.
        """
        request = admin_pb2.UpdatePoliciesRequest(
            scope=_scope(topic, namespace), set=values, remove=list(remove)
        )
        self._call(request)

    def set_compaction_strategy(
        self,
        name: str,
        settings: Mapping[str, object] | None = None,
        *,
        topic: str = "",
        namespace: str = "",
    ) -> None:
        """Sets the compaction strategy, from the next run on (docs/STRATEGIES.md).

        Raises InvalidRequest for an unknown strategy or invalid settings.
        """
        texts = {setting: str(value) for setting, value in (settings or {}).items()}
        strategy = records_pb2.CompactionStrategy(name=name, settings=texts)
        values = records_pb2.Policies(compaction_strategy=strategy)
        self.update_policies(topic=topic, namespace=namespace, values=values)

    def compaction_strategy(
        self, *, topic: str = "", namespace: str = "", applied: bool = False
    ) -> records_pb2.CompactionStrategy | None:
        """Returns the strategy set on the topic or namespace, or None; `applied`: the effective
        one.
        """
        policies = self.policies(topic=topic, namespace=namespace, applied=applied)
        return policies.compaction_strategy if policies.HasField(_STRATEGY) else None

    def remove_compaction_strategy(self, *, topic: str = "", namespace: str = "") -> None:
        """Removes the strategy, so that one is inherited."""
        self.update_policies(topic=topic, namespace=namespace, remove=[_STRATEGY])


def _scope(topic: str, namespace: str) -> admin_pb2.PolicyScope:
    if bool(topic) == bool(namespace):
        raise InvalidRequest("Pass either a topic or a namespace.")
    return (
        admin_pb2.PolicyScope(topic=topic) if topic else admin_pb2.PolicyScope(namespace=namespace)
    )
