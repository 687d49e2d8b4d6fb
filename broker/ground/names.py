"""Topic and namespace names, as Pulsar's.

    >>> str(TopicName.parse("orders"))
    'persistent://public/default/orders'
    >>> TopicName.parse("sales/eu/orders").namespace
    'sales/eu'

Source: Pulsar's TopicName and NamespaceName. A form of two parts does not exist there either.
What other names must be, those of subscriptions say: broker/ground/given_names.py.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ledgerfold.storage.errors import InvalidRequest, NotAllowed

PERSISTENT = "persistent"
NON_PERSISTENT = "non-persistent"
# The subscription that stands for compaction: its mark-delete is the horizon.
COMPACTION_CURSOR = "__compaction"
# Pulsar's NamedEntity: letters, digits and these; a local name may be longer and freer.
_NAMED_ENTITY = re.compile(r"[-=:.\w]+", re.ASCII)
_LOCAL_NAME_MAX = 1024


class TopicName(NamedTuple):
    """A full topic name, taken apart."""

    domain: str
    tenant: str
    namespace_local: str
    local: str

    @classmethod
    def parse(cls, name: str) -> TopicName:
        """Reads a full or a short name. Raises InvalidRequest.

        NOTE: the last part may hold slashes, since earlier versions stored topics of such names.
        No request names one (`persistent_topic`): Pulsar reads four parts as those of its old form.
        """
        domain, scheme, rest = name.partition("://")
        if not scheme:
            domain, rest = PERSISTENT, name
            if "/" not in name:
                rest = f"public/default/{name}"
        if domain not in (PERSISTENT, NON_PERSISTENT):
            raise InvalidRequest(f"Topic {name!r}: the domain is persistent or non-persistent.")
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
        f"Topic {name!r}: write it as topic, tenant/namespace/topic or "
        "persistent://tenant/namespace/topic."
    )


def check_named_entity(part: str, name: str) -> None:
    if not _NAMED_ENTITY.fullmatch(part):
        raise InvalidRequest(f"{name!r}: {part!r} may hold letters, digits, and - = : . _ only.")


def namespace_of(topic: str) -> str:
    """Of a full name."""
    return TopicName.parse(topic).namespace


def parse_namespace(name: str) -> str:
    """Checks "tenant/namespace". Raises InvalidRequest."""
    parts = name.split("/")
    if len(parts) != 2:
        raise InvalidRequest(f"Namespace {name!r}: write it as tenant/namespace.")
    for part in parts:
        check_named_entity(part, name)
    return name


def persistent_topic(name: str, doing: str = "used") -> str:
    """The full name of a persistent topic.

    Raises InvalidRequest for what is no topic's name, NotAllowed for a non-persistent one.
    """
    parsed = TopicName.parse(name)
    if "/" in parsed.local:
        raise _wrong_form(name)
    if parsed.domain != PERSISTENT:
        raise NotAllowed(
            f"{parsed} cannot be {doing}: only persistent topics are stored, and only what is "
            "stored can be compacted. Use persistent://."
        )
    return str(parsed)
