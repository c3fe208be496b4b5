"""What the name of a column says about its cells: identifiers, codes, amounts, people, labels.

A name is split into words: "PatientID", "patient_id" and "patient id" are "patient" and "id". The
lists are of English and German words; a name that has none of them says nothing.
"""

import re

from counterveil.schema import Good


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


IDENTIFIER = _words(
    "id ids uuid guid ssn iban pk rowid identifier key ref reference email mail phone telephone "
    "mobile name surname firstname lastname address street url ip passport kennung"
)
OWNERS = _words(  # of an id or a number: "customerid", "patient number"
    "account applicant application case client customer employee kunden loan member order patient "
    "person policy record row student subject transaction user"
)
NUMBERED = _words("id no nr nbr number")
GROUPED = _words(  # a code, whatever is grouped: "income band"
    "band bracket bucket category class code codes group kind postcode postal plz type zip zipcode"
)
AMOUNT = _words(
    "age amount balance bytes cost count counts day days debt duration fee height hour hours "
    "income length limit loss minutes month months num number payment percent percentage price "
    "quantity rate ratio salary score seconds share size sum tenure total value volume wage weight "
    "year years"
)
CODE = _words(
    "area branch channel county country department dept diagnosis district education ethnicity "
    "gender icd industry job marital marriage nationality occupation plan product province purpose "
    "race region sector sex site state status ward"
)
# What people are, and cannot act on or should not be told to change. Several words that only
# together say so are joined by +.
PERSONAL = {
    "sex": _words(
        "sex gender male female pronoun pronouns transgender sexual geschlecht geschlechts anrede "
        "weiblich männlich maennlich"
    ),
    "race": _words(
        "race races racial ethnic ethnicity ancestry caste tribe skin+color skin+colour indigenous "
        "ethnie ethnisch rasse hautfarbe abstammung"
    ),
    "nationality": _words(
        "nationality citizenship citizen native immigrant immigration migrant migration+background "
        "foreign+worker country+origin national+origin mother+tongue nationalität nationalitaet "
        "staatsangehörigkeit staatsangehoerigkeit staatsbürgerschaft staatsbuergerschaft herkunft "
        "herkunftsland migrationshintergrund muttersprache"
    ),
    "religion": _words("religion religious faith creed denomination konfession glaube"),
    "age": _words(
        "age ages alter altersgruppe lebensalter birth birthday birthdate birthyear born dob yob "
        "geburt geburtsdatum geburtsjahr geburtstag geboren"
    ),
    "birthplace": _words("birthplace birthcountry birth+place geburtsort geburtsland"),
    "residence": _words(
        "region postcode postal+code zip zipcode plz neighbourhood neighborhood residence hometown "
        "postleitzahl wohnort wohnsitz bundesland stadtteil"
    ),
    "family": _words(
        "marital marriage married spouse relationship family widowed divorced civil+status "
        "familienstand familie verheiratet ehepartner ledig geschieden verwitwet"
    ),
    "disability": _words(
        "disability disabilities disabled handicap handicapped impairment behinderung behindert "
        "schwerbehinderung schwerbehindert"
    ),
    "health": _words("genetic genetics genotype pregnant pregnancy schwanger"),
}
# Which way of a number is better for the person, where the name says so plainly.
GOOD: dict[Good, frozenset[str]] = {
    "up": _words(
        "income incomes salary salaries wage wages earnings saving savings einkommen gehalt lohn "
        "ersparnis ersparnisse sparguthaben"
    ),
    "down": _words(
        "debt debts overdue arrears owed unpaid late+times late+payment late+payments late+days "
        "late+months late+fees past+due missed+payment missed+payments schulden verschuldung "
        "rückstand rueckstand rückstände rueckstaende zahlungsverzug überfällig ueberfaellig "
        "mahnung mahnungen"
    ),
}
UNPLAIN = _words(  # days since the last arrears, income tax, debt free: which way is not plain
    "change code free kind last limit no paid rate ratio repaid since share source tax type without"
)
THINGS = _words(  # that have an age
    "account building business car company contract credit debt device equipment firm house "
    "invoice loan machine policy product property vehicle"
)
LABEL = _words(
    "accepted approval approved bad churn churned class decision default defaulted granted label "
    "outcome readmitted response result status survived target y"
)
OF_A_PERSON = _words("employment family marital personal social")  # whose status is no label


def words_of(name: str) -> frozenset[str]:
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)
    words = re.findall(r"[^\W\d_]+", apart.lower())
    for word in [*words]:
        for owner in OWNERS:
            if word.startswith(owner) and word[len(owner) :] in NUMBERED:
                words += [owner, "id"]
    return frozenset(words)


def names_an_identifier(name: str) -> bool:
    """Whether the name is that of something which tells rows or people apart."""
    words = words_of(name)
    owned = bool(words & OWNERS) and bool(words & NUMBERED) and "of" not in words
    return (owned or bool(words & IDENTIFIER and not words & AMOUNT)) and not words & GROUPED


def names_a_code(name: str) -> bool:
    """Whether numbers of this name are codes, such as those of branches, and no amounts."""
    words = words_of(name)
    if words & GROUPED:
        return True
    return names_an_identifier(name) or (bool(words & CODE) and not words & AMOUNT)


def names_an_amount(name: str) -> bool:
    return bool(words_of(name) & AMOUNT) and not names_a_code(name)


def personal_attribute(name: str) -> str | None:
    """Which of the PERSONAL attributes a column holds, by its name; None if it says none.

    The age of a thing is none, nor is an amount of a family, such as its income.

    >>> personal_attribute("MaritalStatus"), personal_attribute("car_age")
    ('family', None)
    """
    words = words_of(name)
    found = [attribute for attribute, phrases in PERSONAL.items() if _has_any(words, phrases)]
    if words & THINGS and "age" in found:
        found.remove("age")
    if words & AMOUNT and "family" in found:
        found.remove("family")
    return found[0] if found else None


def better_way(name: str) -> Good | None:
    """Which way is better for the person, by the name of a number; None where it is not plain.

    >>> better_way("MonthlyIncome"), better_way("days_overdue"), better_way("debt_to_income_ratio")
    ('up', 'down', None)
    """
    words = words_of(name)
    found = [way for way, phrases in GOOD.items() if _has_any(words, phrases)]
    return found[0] if len(found) == 1 and not words & (UNPLAIN | GROUPED) else None


def _has_any(words: frozenset[str], phrases: frozenset[str]) -> bool:
    return any(words >= set(phrase.split("+")) for phrase in phrases)


def like_a_label(name: str) -> float:
    """How much a name is like those of columns that models predict: the share of such words."""
    words = words_of(name)
    return 0.0 if words & OF_A_PERSON else len(words & LABEL) / max(len(words), 1)
