"""The public description of a table: what its columns are, and what each kind of column can do."""

from counterveil.schema.columns import Category
from counterveil.schema.features import Binary, Categorical, Feature, Pixels
from counterveil.schema.kind import Direction, Good
from counterveil.schema.numeric import Numeric
from counterveil.schema.schema import Family, Label, Link, Schema

__all__ = [
    "Binary",
    "Categorical",
    "Category",
    "Direction",
    "Family",
    "Feature",
    "Good",
    "Label",
    "Link",
    "Numeric",
    "Pixels",
    "Schema",
]
