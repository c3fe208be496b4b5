"""Benchmarks of the product under load."""
