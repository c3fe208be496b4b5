"""Campaigns test the product alone, not the paper; their rows are stored like those of the lab."""
