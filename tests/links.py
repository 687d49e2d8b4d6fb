"""A checkout without its symbolic links reports this before an import fails.

`ledgerfold/broker` and its neighbors are links to the top-level folders. Git on Windows, and some
archives, leave a small text file in the place of each.

    >>> lost_links(folder)
    ['ledgerfold/broker', 'ledgerfold/compactor', 'ledgerfold/storage', 'ledgerfold/v1']
"""

from __future__ import annotations

from pathlib import Path

LINKS = {
    "ledgerfold/broker": "../broker",
    "ledgerfold/compactor": "../compactor",
    "ledgerfold/storage": "../storage",
    "ledgerfold/v1": "../proto/ledgerfold/v1",
}
ADVICE = (
    "This checkout has lost symbolic links: {}. Run `git config core.symlinks true`, then "
    "`git checkout -- ledgerfold` (on Windows with Developer Mode on)."
)


def lost_links(root: Path) -> list[str]:
    return [name for name in LINKS if not (root / name).is_dir()]


def check_links(root: Path) -> None:
    """Raises SystemExit with the remedy."""
    if lost := lost_links(root):
        raise SystemExit(ADVICE.format(", ".join(lost)))
