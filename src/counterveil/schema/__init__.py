"""The public description of a table: what its columns are, and what each kind of column can do.

| module | holds |
|---|---|
| `schema` | Schema, Label and Link: a whole table |
| `features` | Numeric, Categorical, Binary and Pixels: the kinds, with their behaviour |
| `kind` | what all kinds have in common |
| `columns` | columns of a table to positions in a list of values, and back |
| `cells` | the cells of one feature on the public grid |
"""

from counterveil.schema.columns import Category
from counterveil.schema.features import Binary, Categorical, Feature, Numeric, Pixels
from counterveil.schema.kind import Direction
from counterveil.schema.schema import Family, Label, Link, Schema

__all__ = [
    "Binary",
    "Categorical",
    "Category",
    "Direction",
    "Family",
    "Feature",
    "Label",
    "Link",
    "Numeric",
    "Pixels",
    "Schema",
]
