"""Experiments by name: `table.EXPERIMENTS` lists them, `table.run_named` runs them.

runner         cases -> those that are missing -> processes -> stored rows -> figure
answers        flip ratios, distances and times of every method
over_epsilon   target models, reconstruction error and answers over ε
images         pictures: reconstructions and the case study
red_team       extraction, membership, attributes, and the trade-off with usefulness
"""
