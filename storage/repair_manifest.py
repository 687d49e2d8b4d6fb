"""The manifests of repairs: DATA/repairs/<time>/manifest.json (docs/FORMATS.md)."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

from ledgerfold.storage.files import Files
from ledgerfold.storage.names import MANIFEST, REPAIRS

# States.
BEGUN, COMPLETE, INTERRUPTED = "begun", "complete", "interrupted"


def read_manifest(folder: Path, files: Files) -> dict[str, Any]:
    with closing(files.open_read(folder / MANIFEST)) as file:
        manifest: dict[str, Any] = json.loads(file.pread(file.size_bytes, 0))
    return manifest


def unfinished_repairs(data_dir: Path, files: Files) -> list[str]:
    """Returns the names, in DATA/repairs, of repairs that were killed."""
    parent = data_dir / REPAIRS
    names = files.listdir(parent) if files.exists(parent) else []
    return [
        name
        for name in names
        if files.exists(parent / name / MANIFEST)
        and read_manifest(parent / name, files).get("state") == BEGUN
    ]


def split_by_unfinished(data_dir: Path, files: Files) -> set[str]:
    """Returns the segments that killed repairs have split off, or may have."""
    paths = set()
    for name in unfinished_repairs(data_dir, files):
        manifest = read_manifest(data_dir / REPAIRS / name, files)
        paths |= {each["target"] for each in manifest.get("split", [])}
    return paths
