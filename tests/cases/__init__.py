"""Cases of the Pulsar catalogue as text, and their runner: docs/CASES.md is the manual.

lexer.py, parser.py, messages.py   the notation, into model.py; every error has its line and column
steps/                             what each step asks of a broker, and what a case may say of it
runner.py, compare.py              one case, from its first step to its first difference
protocol.py                        the requests: what a target must answer
ledgerfold*.py, oracle.py          the targets: this broker, and any that speaks JSON lines
report.py, __main__.py             `scripts/cases`
"""
