"""The attack of the lab, so small that a test can wait for it."""

_START = """
from counterveil_lab.attacks import suite
from counterveil_lab.attacks.protocol import Size
suite.QUICK_DEALS = 1
suite.names_of = lambda veil: ("functional-model",)  # the other guidance takes ten times as long
suite.QUICK = Size(
    rows=200, test=200, queries=(30, 60), epochs=2, steps=60, uniform=100,
    dice_seconds=2, kdtree_queries=4, shadows=2, candidates=60,
)
from counterveil_lab.cli import main
main()
"""
TINY_LAB = ("-c", _START)  # what Python is started with, in place of the lab's own command
