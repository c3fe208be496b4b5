"""Privacy as values: budgets and statements. Holds no data and adds no noise."""

from counterveil.privacy.budget import Budget
from counterveil.privacy.statement import Access, Level, Statement

__all__ = ["Access", "Budget", "Level", "Statement"]
