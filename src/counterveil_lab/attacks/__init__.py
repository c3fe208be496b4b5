"""The red team: attacks on explanations, each with its controls.

protocol     who owns which rows: one game
defences     what an attacker gets to see
extraction   rebuild the model from predictions and counterfactuals
inference    who was in the training rows, and what was in theirs
verdicts     what the numbers say, in sentences
suite        all of it on your own veil and model; `command` is its command line
"""
