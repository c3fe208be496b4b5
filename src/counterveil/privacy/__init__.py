"""Privacy as values: budgets and statements. Holds no data and adds no noise."""

from counterveil.privacy.budget import Budget, ModelBudget, Rho, Share
from counterveil.privacy.statement import Access, Level, Statement

__all__ = ["Access", "Budget", "Level", "ModelBudget", "Rho", "Share", "Statement"]
