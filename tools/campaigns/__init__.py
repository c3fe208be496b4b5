"""Campaigns: does what counterveil says hold? Rows are stored like those of the lab."""
