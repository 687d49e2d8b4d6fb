"""Topic and namespace names, as in Pulsar.

  >>> str(TopicName.parse("orders"))
  'persistent://public/default/orders'
  >>> TopicName.parse("sales/eu/orders").namespace
  'sales/eu'

Source: Pulsar's TopicName and NamespaceName. As in Pulsar, a name of two parts is invalid. Rules
for other names, such as those of subscriptions, are in broker/common/given_names.py.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ledgerfold.storage.errors import InvalidRequest, NotAllowed

PERSISTENT = "persistent"
NON_PERSISTENT = "non-persistent"
DOMAINS = (PERSISTENT, NON_PERSISTENT)
# The subscription of compaction: its mark-delete is the horizon.
COMPACTION_CURSOR = "__compaction"
# Pulsar's NamedEntity: letters, digits and these; a local name has fewer restrictions.
_NAMED_ENTITY = re.compile(r"[-=:.\w]+", re.ASCII)
_LOCAL_NAME_MAX = 1024


class TopicName(NamedTuple):
    """The parts of a full topic name."""

    domain: str
    tenant: str
    namespace_local: str
    local: str

    @classmethod
    def parse(cls, name: str) -> TopicName:
        """Parses a full or a short name. Raises InvalidRequest.

        NOTE: the last part may contain slashes, since earlier versions stored topics with such
        names. A request cannot name one (`persistent_topic`): Pulsar parses four parts as its old
        format.
        """
        domain, scheme, rest = name.partition("://")
        if not scheme:
            domain, rest = PERSISTENT, name
            if "/" not in name:
                rest = f"public/default/{name}"
        if domain not in DOMAINS:
            raise InvalidRequest(
                f"Topic {name!r}: the domain must be persistent or non-persistent."
            )
        parts = rest.split("/", 2)
        if len(parts) != 3:
            raise _wrong_form(name)
        tenant, namespace, local = parts
        for part in (tenant, namespace):
            check_named_entity(part, name)
        if not local or len(local) > _LOCAL_NAME_MAX or not local.isprintable():
            raise InvalidRequest(
                f"Topic {name!r}: the last part must be 1 to 1024 printable characters."
            )
        return cls(domain, tenant, namespace, local)

    @property
    def namespace(self) -> str:
        return f"{self.tenant}/{self.namespace_local}"

    def __str__(self) -> str:
        return f"{self.domain}://{self.tenant}/{self.namespace_local}/{self.local}"


def _wrong_form(name: str) -> InvalidRequest:
    return InvalidRequest(
        f"Topic {name!r}: use topic, tenant/namespace/topic or persistent://tenant/namespace/topic."
    )


def check_named_entity(part: str, name: str) -> None:
    if not _NAMED_ENTITY.fullmatch(part):
        raise InvalidRequest(f"{name!r}: {part!r} may contain only letters, digits, and - = : . _.")


def namespace_of(topic: str) -> str:
    """Returns the namespace of a full name."""
    return TopicName.parse(topic).namespace


def parse_namespace(name: str) -> str:
    """Checks "tenant/namespace". Raises InvalidRequest."""
    parts = name.split("/")
    if len(parts) != 2:
        raise InvalidRequest(f"Namespace {name!r}: use tenant/namespace.")
    for part in parts:
        check_named_entity(part, name)
    return name


def full_topic(name: str) -> str:
    """Returns the full name of a topic of either domain. Raises InvalidRequest."""
    parsed = TopicName.parse(name)
    if "/" in parsed.local:
        raise _wrong_form(name)
    return str(parsed)


def is_non_persistent(full_name: str) -> bool:
    """Returns whether a full name is that of a non-persistent topic.

    >>> is_non_persistent("non-persistent://public/default/t")
    True
    """
    return full_name.startswith(f"{NON_PERSISTENT}://")


def persistent_topic(name: str, doing: str = "used") -> str:
    """Returns the full name of a persistent topic.

    Raises InvalidRequest for an invalid name, NotAllowed for a non-persistent topic.
    """
    full = full_topic(name)
    if is_non_persistent(full):
        raise NotAllowed(
            f"{full} cannot be {doing}: only persistent topics are stored, and only stored "
            "topics can be compacted. Use persistent://."
        )
    return full
