"""Algorithm 2 as published, and what only it needs."""
