"""Small random worlds: schemas, rules, queries and models, and a second reading of the rules."""
