r"""HTML from templates, safe for any content of a topic.

Every value that a template shows is escaped by Jinja. Before that, `visible` replaces control
characters, and those that change the direction of text, with visible ones.

    >>> visible("a\x00b\u202ec")
    'a\\x00b\\u202ec'
    >>> shown_bytes(b'{"n": 1}'), shown_bytes(b"\xff\x00")
    (Shown(text='{"n": 1}', is_binary=False, is_cut=False, size_bytes=8), ...is_binary=True...)

Scripts and styles come from this server only, as Content-Security-Policy says: nothing inline runs.
"""

from __future__ import annotations

import hashlib
from codecs import getincrementaldecoder
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ledgerfold.broker.common.sizes import format_size
from ledgerfold.broker.http.answers import Answer, Refusal
from ledgerfold.broker.page.page_request import topic_path
from ledgerfold.broker.page.sign_in import CHALLENGE

SHOWN_BYTES_MAX = 1024
NOT_FOUND = "There is nothing here."
_HTML = "text/html; charset=utf-8"
_PACKAGE = "ledgerfold.broker.page"
_STATIC = {
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
_SAFETY = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # With no-referrer, browsers would send a form with `Origin: null`.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Page(NamedTuple):
    """The answer of a view: a template with its values."""

    template: str
    title: str
    values: Mapping[str, Any] = {}
    status: int = 200


class Redirect(NamedTuple):
    """The answer of a change: the page to show now."""

    location: str


class Shown(NamedTuple):
    """The first bytes of a key or a value, as text or in hexadecimal."""

    text: str
    is_binary: bool
    is_cut: bool
    size_bytes: int


def visible(value: Any) -> Any:
    """Returns a text with escapes for what is not printable, except line ends and tabs."""
    if not isinstance(value, str) or isinstance(value, Markup) or value.isprintable():
        return value
    return "".join(
        each
        if each in "\n\t" or each.isprintable()
        else each.encode("unicode_escape", "surrogatepass").decode()
        for each in value
    )


def shown_bytes(data: bytes) -> Shown:
    """Returns the beginning of some bytes as people can read it."""
    most = SHOWN_BYTES_MAX
    part, is_cut = data[:most], len(data) > most
    try:
        # A cut may have split the last character.
        text = getincrementaldecoder("utf-8")().decode(part, final=not is_cut)
    except UnicodeDecodeError:
        return Shown(part[: most // 4].hex(" "), True, len(data) > most // 4, len(data))
    return Shown(text, False, is_cut, len(data))


def moment(time_ms: int) -> str:
    """Formats a time in UTC; as a number if it is outside the calendar."""
    try:
        at = datetime.fromtimestamp(time_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms"
    return at.strftime("%Y-%m-%d %H:%M:%S")


def duration(time_ms: float) -> str:
    """Formats a duration with its two largest units.

    >>> duration(95), duration(4370), duration(3_726_000), duration(86_400_000)
    ('95 ms', '4.4 s', '1 h 2 min', '1 d')
    """
    if time_ms < 1000:
        return f"{time_ms:.0f} ms"
    if time_ms < 60_000:
        return f"{time_ms / 1000:.1f} s"
    parts, left_s = list[str](), int(time_ms // 1000)
    for unit, size_s in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        number, left_s = divmod(left_s, size_s)
        if number:
            parts.append(f"{number} {unit}")
    return " ".join(parts[:2])


def percent(part: float, total: float) -> float:
    """Returns a share in percent, at most 100; 0 of nothing."""
    return round(min(100.0, 100 * part / total), 3) if total > 0 else 0.0


@dataclass(frozen=True, slots=True)
class StaticFile:
    body: bytes
    content_type: str
    version: str


@cache
def static_files() -> Mapping[str, StaticFile]:
    folder = files(_PACKAGE).joinpath("static")
    contents = {name: folder.joinpath(name).read_bytes() for name in _STATIC}
    return {
        name: StaticFile(body, _STATIC[name], hashlib.sha256(body).hexdigest()[:12])
        for name, body in contents.items()
    }


def static_answer(name: str) -> Answer:
    """Returns a script, a style or a picture of this package. Raises Refusal."""
    file = static_files().get(name)
    if file is None:
        raise Refusal(404, NOT_FOUND)
    # Its address has its version.
    cached = {"Cache-Control": "max-age=31536000, immutable"}
    return Answer(200, file.body, file.content_type, _SAFETY | cached)


def static_url(name: str) -> str:
    return f"/static/{name}?v={static_files()[name].version}"


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=PackageLoader(_PACKAGE),
        autoescape=True,
        finalize=visible,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters.update(
        size=format_size,
        count=lambda number: f"{number:,}",
        moment=moment,
        duration=duration,
        path=topic_path,
    )
    environment.globals.update(static=static_url, percent=percent)
    return environment


def html_answer(page: Page, common: Mapping[str, Any]) -> Answer:
    """Renders a page. `common`: values that every page has."""
    template = _templates().get_template(page.template)
    body = template.render(**common, title=page.title, **page.values)
    headers = _SAFETY | {"Cache-Control": "no-store"}
    if page.status == 401:
        headers |= {"WWW-Authenticate": CHALLENGE}
    return Answer(page.status, body.encode(errors="replace"), _HTML, headers)


def redirect_answer(redirect: Redirect) -> Answer:
    headers = _SAFETY | {"Location": redirect.location, "Cache-Control": "no-store"}
    return Answer(303, b"", _HTML, headers)
