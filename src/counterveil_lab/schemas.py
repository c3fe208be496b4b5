"""The public schemas of the lab's datasets, written by hand.

Bounds come from code books, forms and round caps, never from a minimum or maximum of rows;
`counterveil_lab.datasets` clips and groups values by the same rules. docs/datasets.md gives the
reasons, and says where a choice was read off a published table after all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from counterveil.schema import Binary, Categorical, Feature, Label, Numeric, Pixels, Schema

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
DRUGS = (
    "metformin", "repaglinide", "nateglinide", "glimepiride", "glipizide", "glyburide",
    "pioglitazone", "rosiglitazone", "insulin", "glyburide-metformin",
)  # fmt: skip

# The ids of Hospital's code book. An id in no group (not available, not mapped, null) is missing.
ADMISSION_TYPES: Groups = {
    "emergency": (1,), "urgent": (2,), "elective": (3,), "newborn": (4,), "trauma centre": (7,),
}  # fmt: skip
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
    "services": (
        "Services", "Security", "Restaurant", "Hotel", "Cleaning", "Telecom", "Mobile",
        "Advertising", "Legal Services",
    ),
    "other": (),
}  # fmt: skip


def diagnosis_group(code: str) -> str:
    """The group of an ICD-9 code, for example circulatory for 428 and diabetes for 250.13."""
    if code[:1] in {"E", "V"}:
        return "other"
    number = int(float(code))
    return next((name for name, ranges in DIAGNOSES.items() if any(number in r for r in ranges)),
                "other")  # fmt: skip


def employer_group(name: str) -> str | None:
    """The branch of an employer; XNA, which HomeCredit writes for nobody, is missing."""
    if name == "XNA":
        return None
    return next((group for group, heads in EMPLOYERS.items() if name.startswith(heads)), "other")


def hospital_schema() -> Schema:
    """Diabetes 130-US hospitals: 31 features, 127 encoded numbers, readmission within 30 days."""
    return Schema(
        name="hospital",
        note="Bounds: stays of 1 to 14 days were included (Strack et al. 2014); the published "
        "coding ends at 6 procedures and 16 diagnoses; round caps of 100 laboratory tests, 50 "
        "drugs, and 12 visits in the year before, one a month; what is above counts as the cap. "
        "Diagnoses: the ICD-9 groups of Strack et al. "
        "2014. Admission and discharge: the code book's ids, grouped; 'not available', 'not "
        "mapped', 'unknown' and 'null' are missing.",
        label=Label(name="readmitted_within_30_days", classes=("no", "yes")),
        features=(
            Categorical(
                name="race",
                categories=("AfricanAmerican", "Asian", "Caucasian", "Hispanic", "Other"),
                missing=True,
            ),
            Categorical(name="gender", categories=("Female", "Male"), missing=True),
            Categorical(
                name="age",
                categories=tuple(f"[{decade}-{decade + 10})" for decade in range(0, 100, 10)),
                ordered=True,
            ),
            Categorical(name="admission_type", categories=tuple(ADMISSION_TYPES), missing=True),
            Categorical(name="discharge", categories=tuple(DISCHARGES), missing=True),
            Categorical(name="admission_source", categories=tuple(ADMISSION_SOURCES), missing=True),
            _count("time_in_hospital", 14, least=1),
            _count("num_lab_procedures", 100, least=1),
            _count("num_procedures", 6),
            _count("num_medications", 50, least=1),
            _count("number_outpatient", 12),
            _count("number_emergency", 12),
            _count("number_inpatient", 12),
            *(
                Categorical(name=f"diag_{place}", categories=tuple(DIAGNOSES), missing=True)
                for place in (1, 2, 3)
            ),
            _count("number_diagnoses", 16, least=1),
            Categorical(name="max_glu_serum", categories=("None", "Norm", ">200", ">300")),
            Categorical(name="A1Cresult", categories=("None", "Norm", ">7", ">8")),
            *(Categorical(name=drug, categories=("No", "Down", "Steady", "Up")) for drug in DRUGS),
            Binary(name="change", values=("No", "Ch")),
            Binary(name="diabetesMed", values=("No", "Yes")),
        ),
    )


def homecredit_schema() -> Schema:
    """Home Credit Default Risk: 39 features of the application, and whether payment was hard."""
    return Schema(
        name="homecredit",
        note="Bounds: scores and normalised building figures lie in 0 to 1 by construction; money "
        "has round caps (income 1 million, credit and goods 3 million, annuity 150 thousand); "
        "years and counts have the caps of common sense; what is above counts as the cap. "
        "Categories: the form's own lists; employers are grouped by branch. Days before the "
        "application became years.",
        label=Label(name="TARGET", classes=(0, 1)),
        features=(
            *_homecredit_person(),
            *_homecredit_money(),
            *_homecredit_history(),
        ),
    )


def _homecredit_person() -> tuple[Feature, ...]:
    return (
        Categorical(name="CODE_GENDER", categories=("F", "M"), missing=True),
        _count("AGE_YEARS", 70, least=18),
        _count("CNT_CHILDREN", 10),
        Categorical(
            name="NAME_EDUCATION_TYPE",
            categories=(
                "Lower secondary", "Secondary / secondary special", "Incomplete higher",
                "Higher education", "Academic degree",
            ),
            ordered=True,
        ),
        Categorical(
            name="NAME_FAMILY_STATUS",
            categories=(
                "Civil marriage", "Married", "Separated", "Single / not married", "Widow",
            ),
        ),
        Categorical(
            name="NAME_HOUSING_TYPE",
            categories=(
                "Co-op apartment", "House / apartment", "Municipal apartment", "Office apartment",
                "Rented apartment", "With parents",
            ),
        ),
        Categorical(
            name="NAME_INCOME_TYPE",
            categories=(
                "Businessman", "Commercial associate", "Maternity leave", "Pensioner",
                "State servant", "Student", "Unemployed", "Working",
            ),
        ),
        Categorical(
            name="OCCUPATION_TYPE",
            categories=(
                "Accountants", "Cleaning staff", "Cooking staff", "Core staff", "Drivers",
                "HR staff", "High skill tech staff", "IT staff", "Laborers", "Low-skill Laborers",
                "Managers", "Medicine staff", "Private service staff", "Realty agents",
                "Sales staff", "Secretaries", "Security staff", "Waiters/barmen staff",
            ),
            missing=True,
        ),
        Categorical(name="ORGANIZATION_TYPE", categories=tuple(EMPLOYERS), missing=True),
        Numeric(name="YEARS_EMPLOYED", lower=0, upper=50, missing=True),
        Binary(name="FLAG_OWN_CAR", values=("N", "Y")),
        _count("OWN_CAR_AGE", 40, missing=True),
        Binary(name="FLAG_OWN_REALTY", values=("N", "Y")),
        Numeric(name="FLOORSMAX_AVG", lower=0, upper=1, missing=True),
    )  # fmt: skip


def _homecredit_money() -> tuple[Feature, ...]:
    return (
        Numeric(name="AMT_INCOME_TOTAL", lower=0, upper=1_000_000),
        Numeric(name="AMT_CREDIT", lower=0, upper=3_000_000),
        Numeric(name="AMT_ANNUITY", lower=0, upper=150_000, missing=True),
        Numeric(name="AMT_GOODS_PRICE", lower=0, upper=3_000_000, missing=True),
        Binary(name="NAME_CONTRACT_TYPE", values=("Cash loans", "Revolving loans")),
        Categorical(
            name="NAME_TYPE_SUITE",
            categories=(
                "Children", "Family", "Group of people", "Other_A", "Other_B", "Spouse, partner",
                "Unaccompanied",
            ),
            missing=True,
        ),
        _count("HOUR_APPR_PROCESS_START", 23),
    )  # fmt: skip


def _homecredit_history() -> tuple[Feature, ...]:
    return (
        *(Numeric(name=f"EXT_SOURCE_{n}", lower=0, upper=1, missing=True) for n in (1, 2, 3)),
        Numeric(name="YEARS_REGISTRATION", lower=0, upper=60),
        Numeric(name="YEARS_ID_PUBLISH", lower=0, upper=20),
        Numeric(name="YEARS_LAST_PHONE_CHANGE", lower=0, upper=12),
        _count("OBS_30_CNT_SOCIAL_CIRCLE", 20, missing=True),
        _count("DEF_30_CNT_SOCIAL_CIRCLE", 5, missing=True),
        _count("AMT_REQ_CREDIT_BUREAU_QRT", 5, missing=True),
        _count("AMT_REQ_CREDIT_BUREAU_YEAR", 12, missing=True),
        Numeric(name="REGION_POPULATION_RELATIVE", lower=0, upper=0.1),
        Categorical(name="REGION_RATING_CLIENT", categories=(1, 2, 3), ordered=True),
        *(
            Binary(name=name)
            for name in (
                "REG_CITY_NOT_LIVE_CITY", "REG_CITY_NOT_WORK_CITY", "FLAG_WORK_PHONE",
                "FLAG_PHONE", "FLAG_DOCUMENT_3", "FLAG_DOCUMENT_6",
            )
        ),
    )  # fmt: skip


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


def _count(name: str, most: int, *, least: int = 0, missing: bool = False) -> Numeric:
    return Numeric(name=name, lower=least, upper=most, integer=True, missing=missing)
