"""Privacy as values: budgets and statements. Holds no data and adds no noise."""

from counterveil.privacy.statement import Access, Budget, Level, ModelBudget, Statement

__all__ = ["Access", "Budget", "Level", "ModelBudget", "Statement"]
