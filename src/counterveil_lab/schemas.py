"""The public schemas of the lab's datasets, and the groups into which codes of raw files fall.

`hospital.schema.json` and `homecredit.schema.json` were written by hand: bounds come from code
books, forms and round caps, never from a minimum or maximum of rows. `counterveil_lab.datasets`
clips and groups values by the same rules. docs/datasets.md gives the reasons, and says where a
choice was read off a published table after all.
"""

from collections.abc import Mapping, Sequence
from importlib.resources import files

from counterveil.schema import Binary, Label, Pixels, Schema

Groups = Mapping[str, tuple[int, ...]]

# Strack et al. 2014, table 2: the first three figures of an ICD-9 code. Codes in no range, and
# those that begin with E or V, are "other"; 250 is diabetes.
DIAGNOSES: Mapping[str, tuple[range, ...]] = {
    "circulatory": (range(390, 460), range(785, 786)),
    "respiratory": (range(460, 520), range(786, 787)),
    "digestive": (range(520, 580), range(787, 788)),
    "diabetes": (range(250, 251),),
    "injury": (range(800, 1000),),
    "musculoskeletal": (range(710, 740),),
    "genitourinary": (range(580, 630), range(788, 789)),
    "neoplasms": (range(140, 240),),
    "other": (),
}

# The ids of Hospital's code book. An id in no group (not available, not mapped, null) is missing.
ADMISSION_TYPES: Groups = {
    "emergency": (1,),
    "urgent": (2,),
    "elective": (3,),
    "newborn": (4,),
    "trauma centre": (7,),
}
DISCHARGES: Groups = {
    "home": (1,),
    "home with care": (6, 8),
    "nursing facility": (3, 4, 15, 24),
    "hospital or inpatient care": (2, 5, 9, 10, 22, 23, 27, 28, 29, 30),
    "outpatient care": (12, 16, 17),
    "hospice": (13, 14),
    "left against advice": (7,),
    "died": (11, 19, 20, 21),
}
ADMISSION_SOURCES: Groups = {
    "referral": (1, 2, 3),
    "emergency room": (7,),
    "transfer": (4, 5, 6, 10, 18, 19, 22, 25, 26),
    "birth or court": (8, 11, 12, 13, 14, 23, 24),
}

# HomeCredit numbers some branches ("Trade: type 3"): what a name begins with decides. A name in no
# group is "other".
_SERVICES = "Services Security Restaurant Hotel Cleaning Telecom Mobile Advertising"
EMPLOYERS: Mapping[str, tuple[str, ...]] = {
    "business entity": ("Business Entity",),
    "self-employed": ("Self-employed",),
    "trade": ("Trade",),
    "industry": ("Industry",),
    "transport": ("Transport",),
    "state": ("Government", "Military", "Police", "Security Ministries", "Emergency", "Postal"),
    "education": ("School", "Kindergarten", "University"),
    "medicine": ("Medicine",),
    "building": ("Construction", "Housing", "Realtor"),
    "finance": ("Bank", "Insurance"),
    "services": (*_SERVICES.split(), "Legal Services"),
    "other": (),
}


def diagnosis_group(code: str) -> str:
    """The group of an ICD-9 code, for example circulatory for 428 and diabetes for 250.13."""
    if code[:1] in {"E", "V"}:
        return "other"
    number = int(float(code))
    found = (name for name, ranges in DIAGNOSES.items() if any(number in each for each in ranges))
    return next(found, "other")


def employer_group(name: str) -> str | None:
    """The branch of an employer; XNA, which HomeCredit writes for nobody, is missing."""
    if name == "XNA":
        return None
    return next((group for group, heads in EMPLOYERS.items() if name.startswith(heads)), "other")


def read_schema(name: str) -> Schema:
    """The schema in the file `name.schema.json` of this package."""
    content = files("counterveil_lab").joinpath(f"{name}.schema.json").read_bytes()
    return Schema.from_json(content)


def image_schema(name: str, side: int, levels: int) -> Schema:
    """Square grey pictures of the ten digits."""
    return Schema(
        name=name,
        note=f"Grey values run from 0 to {levels} by the file format; the labels are the digits.",
        label=Label(name="digit", classes=tuple(range(10))),
        features=(Pixels(name="pixel", height=side, breadth=side, levels=levels),),
    )


def binary_schema(name: str, features: Sequence[str], classes: int) -> Schema:
    """Yes-or-no columns and numbered classes."""
    return Schema(
        name=name,
        note="A column is 1 where the record has the attribute; the list of attributes is public.",
        label=Label(name="class", classes=tuple(range(classes))),
        features=tuple(Binary(name=feature) for feature in features),
    )
