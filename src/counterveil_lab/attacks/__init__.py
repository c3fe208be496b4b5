"""The red team: attacks on explanations, each with its controls.

protocol deals out the rows of a game, defences are what an attacker gets to see, extraction and
inference attack, verdicts and headlines say what came of it, suite plays all on your own veil.
"""
