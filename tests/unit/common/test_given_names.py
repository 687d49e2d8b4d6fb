"""Names that clients give: valid ones, and how a listing shows an invalid one."""

from __future__ import annotations

import pytest

from ledgerfold.broker.common.given_names import (
    NAME_CHARACTERS_MAX,
    PROPERTIES_CHARACTERS_MAX,
    PROPERTIES_MAX,
    called,
    check_name,
    check_namespace,
    check_properties,
    check_topic,
    is_stand_in,
    shown,
    shown_topic,
)
from ledgerfold.broker.common.names import TopicName
from ledgerfold.storage.errors import InvalidRequest

FINE = ["s", "my/own sub", "a:b@c", "übung", "订阅", "\U0001f468\u200d\U0001f469", "...", " ", "-"]
REFUSED = [
    "",
    ".",
    "..",
    "a\0b",
    "\x1b[2J",
    "a\nb",
    "\r",
    "\t",
    "\x7f",
    "\x85",
    "a\u2028b",
    "\u2029",
]


@pytest.mark.parametrize("name", [*FINE, "x" * NAME_CHARACTERS_MAX])
def test_names_that_pulsar_accepts_are_accepted(name: str) -> None:
    check_name("A subscription", name)
    assert shown(name) == name


@pytest.mark.parametrize("name", [*REFUSED, "x" * (NAME_CHARACTERS_MAX + 1)])
def test_names_that_cannot_be_typed_are_rejected(name: str) -> None:
    """The error shows a short stand-in for the name."""
    with pytest.raises(InvalidRequest, match=r"^A producer cannot be named '"):
        check_name("A producer", name)
    stand_in = shown(name)
    check_name("A stand-in", stand_in)
    assert stand_in == shown(name)
    assert len(stand_in) < 60


def test_stand_ins_are_distinct() -> None:
    """Tests long names that begin alike, and names that differ only in omitted parts."""
    names = ["x" * 2000, "x" * 2001, "a\nb", "a\rb", "a?b"]
    assert len(set(map(shown, names))) == len(names)
    for name in names:
        assert called(shown(name), names) == name
    assert called("none of them", names) is None


@pytest.mark.parametrize("tenant", ["..", ".", "x" * 1025])
def test_tenants_and_namespaces(tenant: str) -> None:
    """Their form is valid: stored ones are accepted, and listed by a stand-in."""
    full = f"persistent://{tenant}/{tenant}/t"
    assert str(TopicName.parse(full)) == full
    for check, name in ((check_topic, full), (check_namespace, f"n/{tenant}")):
        with pytest.raises(InvalidRequest, match=r"^A (tenant|namespace) cannot be named"):
            check(name)
    listed = shown_topic(full)
    check_topic(listed)
    assert is_stand_in(listed)
    assert listed.endswith("/t")
    for fine in ("persistent://public/default/t", "persistent://a.b/c.12345678x/t"):
        assert shown_topic(fine) == fine
        assert not is_stand_in(fine)


def test_properties_of_a_client() -> None:
    """Limits their number, their keys, and their total size."""
    check_properties("a consumer", {"any key": "any\nvalue"})
    for wrong in (
        {"": "1"},
        {"a\nb": "1"},
        {str(number): "" for number in range(PROPERTIES_MAX + 1)},
        {"a": "x" * PROPERTIES_CHARACTERS_MAX},
    ):
        with pytest.raises(InvalidRequest, match=r"propert(y|ies) of a consumer"):
            check_properties("a consumer", wrong)
