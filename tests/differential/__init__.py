"""Random scenarios, to be answered by this broker and by another one, and compared.

generate.py   a scenario from a seed, as steps of the notation (docs/CASES.md) without expectations
replay.py     what a target answers to each step
shrink.py     the smallest scenario that still differs
"""
