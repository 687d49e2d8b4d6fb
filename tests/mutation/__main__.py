"""`scripts/mutate`: measures how many small defects the tests detect.

    scripts/mutate                                   a random sample of 300 mutants
    scripts/mutate --room broker/log --sample 50 --seed 7
    scripts/mutate --list --room broker/log
    scripts/mutate --stories [NAME ...]

Results are stored in a file (--results): an interrupted run continues there. Mutants of modules
that have changed since are tested again; with --again also those that survived.
Exit codes: 0 at least 95 % were detected, or all stories; 1 fewer; 2 usage error; 3 the tests fail
without a defect.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tests.mutation import equal, stories
from tests.mutation.edits import EditError
from tests.mutation.operators import OPERATORS, Mutant, mutants_of
from tests.mutation.results import Fate, Result, Results, table
from tests.mutation.rooms import ROOMS, room_of
from tests.mutation.running import Broken, beside_each_other, check_without_defect, judge
from tests.mutation.tree import ROOT, Tree

EXIT_ALIVE, EXIT_BROKEN = 1, 3
# Of the mutants that are not equal.
SHARE_MIN = 0.95
_RESULTS = Path(tempfile.gettempdir()) / "ledgerfold-mutation.jsonl"


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        if options.stories is not None:
            return _tell_stories(options.stories, options.jobs)
        return _mutate(options)
    except (Broken, EditError) as error:
        print(error, file=sys.stderr)
        return EXIT_BROKEN


# Mutants


def all_mutants(rooms: Sequence[str] = (), left_out: Sequence[str] = ()) -> list[Mutant]:
    """`rooms`: empty means all; `left_out`: path prefixes."""
    return [
        mutant
        for room in ROOMS
        if not rooms or room.name in rooms
        for path in sorted((ROOT / room.name).rglob("*.py"))
        for relative in [str(path.relative_to(ROOT))]
        if not relative.startswith(tuple(left_out))
        for mutant in mutants_of(relative, path.read_text())
    ]


def sample(mutants: Sequence[Mutant], count: int, seed: int) -> list[Mutant]:
    """Picks a random sample, which is the same as long as the code does not change."""

    def rank(mutant: Mutant) -> bytes:
        return hashlib.sha256("\0".join((str(seed), *map(str, mutant.key))).encode()).digest()

    return sorted(mutants, key=rank)[:count]


def _mutate(options: argparse.Namespace) -> int:
    mutants = all_mutants(options.room, options.without)
    if options.operator:
        mutants = [each for each in mutants if each.operator in options.operator]
    sampled = sample(mutants, options.sample, options.seed)
    if options.list:
        for each in sorted(sampled, key=lambda each: (each.path, each.line)):
            print(each, "", *_lines("-", each.before), *_lines("+", each.after), sep="\n    ")
        return 0
    found = _judged(sampled, options)
    print(f"\n{table(found, [each.name for each in ROOMS], lambda one: room_of(one.path).name)}")
    print(f"\n{table(found, OPERATORS, lambda one: one.operator)}")
    for entry in _stale():
        print(f"\nStale in equal.toml: {entry.within}, {entry.operator}: {entry.before}")
    judged = [each for each in found if each.fate is not Fate.EQUAL]
    alive = [each for each in judged if each.fate is Fate.ALIVE]
    return EXIT_ALIVE if len(alive) > (1 - SHARE_MIN) * len(judged) else 0


def _judged(sampled: list[Mutant], options: argparse.Namespace) -> list[Result]:
    results, known, found = Results(options.results), equal.known(), list[Result]()
    sources = {each.path: (ROOT / each.path).read_bytes() for each in sampled}
    waiting = list[Mutant]()
    for mutant in sampled:
        kept = results.get(mutant, sources[mutant.path])
        if mutant.key in known:
            found.append(Result(mutant, Fate.EQUAL, known[mutant.key].why))
        elif kept is None or (options.again and kept.fate is Fate.ALIVE):
            waiting.append(mutant)
        else:
            found.append(kept)
            _tell(kept, is_new=False)
    print(f"{len(sampled)} mutants, {len(waiting)} to test; results are stored in {results.path}")
    if options.kept:
        return found
    if waiting and not options.unchecked:
        _check_rooms(waiting, options)

    def judge_one(tree: Tree, one: Mutant) -> Result:
        return judge(tree, one, sources[one.path], options.seeds, rest=options.rest)

    for mutant, result in beside_each_other(waiting, judge_one, options.jobs):
        results.add(result, sources[mutant.path])
        found.append(result)
        print(f"{len(found)}/{len(sampled)} ", end="")
        _tell(result, is_new=True)
    return found


def _check_rooms(waiting: list[Mutant], options: argparse.Namespace) -> None:
    """Checks that the tests pass without a defect: otherwise each mutant would seem detected."""
    names = {room_of(each.path).name for each in waiting}
    rooms = [each for each in ROOMS if each.name in names]

    def check(tree: Tree, at: int) -> None:
        check_without_defect(tree, rooms[at], options.seeds)

    for at, _ in beside_each_other(range(len(rooms)), check, options.jobs):
        print(f"{rooms[at].name}: the tests pass without a defect", flush=True)


def _tell(result: Result, *, is_new: bool) -> None:
    mutant, fate, by, took_s = result
    if fate is Fate.ALIVE:
        lines = [*_lines("-", mutant.before), *_lines("+", mutant.after)]
        print(f"ALIVE {mutant}", *lines, sep="\n    ")
        print(equal.entry_for(mutant), flush=True)
    elif is_new:
        print(f"{fate} {took_s:.0f} s  {mutant}  by {by[:120]}", flush=True)


def _lines(mark: str, text: str) -> list[str]:
    return [f"{mark} {each}" for each in text.splitlines()]


def _stale() -> list[equal.Equal]:
    return equal.stale(equal.known().values(), all_mutants())


# Stories


def _tell_stories(names: Sequence[str], jobs: int) -> int:
    known = stories.load()
    unknown = sorted(set(names) - set(known))
    if unknown:
        print(f"No such stories: {', '.join(unknown)}", file=sys.stderr)
        return 2
    wanted = [known[name] for name in names or sorted(known)]
    began_s, missed = time.monotonic(), list[str]()
    for story, how in beside_each_other(wanted, partial(_look), jobs):
        if not how:
            missed.append(story.name)
        print(f"{story.name}: {how or 'NOT FOUND within ' + str(story.seeds)}", flush=True)
    took_s = time.monotonic() - began_s
    print(f"{len(wanted)} stories in {took_s:.0f} s, {len(missed)} not found {sorted(missed)}")
    return EXIT_ALIVE if missed else 0


def _look(tree: Tree, story: stories.Story) -> str:
    return stories.look_for(tree, story)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/mutate",
        description="Inserts small defects (mutants) into copies of the tree, and counts those "
        "that the tests and the simulator detect. Exit codes: 0 at least 95 % were detected, or "
        "all stories; 1 fewer; 2 usage error; 3 the tests fail without a defect.",
    )
    parser.add_argument(
        "--room",
        action="append",
        default=[],
        choices=[each.name for each in ROOMS],
        help="mutate only this room; may be repeated",
    )
    parser.add_argument(
        "--operator",
        action="append",
        default=[],
        choices=OPERATORS,
        help="use only this kind of change; may be repeated",
    )
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="PATH",
        help="leave out modules whose path begins so; may be repeated",
    )
    parser.add_argument(
        "--sample", type=int, default=300, help="the number of mutants; default 300"
    )
    parser.add_argument("--seed", type=int, default=1, help="the seed of the sample; default 1")
    parser.add_argument(
        "--seeds",
        type=int,
        default=500,
        help="the number of the simulator's seeds for each mutant; default 500",
    )
    parser.add_argument(
        "--jobs", type=int, default=2, help="the number of parallel jobs; default 2"
    )
    parser.add_argument(
        "--results", type=Path, default=_RESULTS, help=f"the file of results; default {_RESULTS}"
    )
    parser.add_argument(
        "--kept", action="store_true", help="test nothing; count only the stored results"
    )
    parser.add_argument("--again", action="store_true", help="test mutants that survived once more")
    parser.add_argument(
        "--rest", action="store_true", help="run all other fast tests on survivors, too"
    )
    parser.add_argument("--list", action="store_true", help="list the mutants, and test nothing")
    parser.add_argument(
        "--unchecked",
        action="store_true",
        help="do not first check that the tests pass without a defect",
    )
    parser.add_argument(
        "--stories",
        nargs="*",
        metavar="NAME",
        help="check that these stories, or all, are found, instead of mutants",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
