"""Shows that the tests can fail: small defects are inserted into the product, and a test must
notice them.

    scripts/mutate                                   a random sample of 300 mutants of all rooms
    scripts/mutate --room broker/log --sample 50 --seed 7
    scripts/mutate --stories                         every story

* A **mutant** is one small edit that a rule makes from the syntax tree (operators.py). It runs in a
  copy of the tree: the tests of its room, then the simulator's seeds, until one fails; with --rest
  the other fast tests, too. A mutant that nothing notices is alive: it needs a test, or a line in
  `equal.toml` with the reason why it changes nothing.
* A **story** is a subtle defect written by hand (stories.py). The simulator must find it within the
  seeds that it states.

Why a separate tool: mutmut 3 names mutants by the file's path, which is not its import path here
(`ledgerfold/broker` is a link), writes `mutants/` into the checkout, and runs only pytest.
cosmic-ray 8 writes each mutant into the checkout, has no random sample, and brings aiohttp and
SQLAlchemy. mutatest stopped at Python 3.8. None of them drops an await or a check, or swaps two
statements; such rules make up most of this package.
"""
