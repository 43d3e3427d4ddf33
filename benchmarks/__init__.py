"""How fast Clearhead is beside other libraries, measured in one run on one machine.

`make bench` runs everything and writes docs/benchmarks.md and docs/benchmarks.json. Each module answers one question
and can be run alone: `python -m benchmarks.training --quick`.
"""
