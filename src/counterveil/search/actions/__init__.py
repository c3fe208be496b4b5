"""The search over sets of actions, for mixed tables."""
