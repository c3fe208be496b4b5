"""Experiments by name: `table.EXPERIMENTS` lists them, `table.run_named` runs them."""
