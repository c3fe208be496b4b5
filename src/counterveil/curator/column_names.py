"""What the name of a column says about its cells: identifiers, codes, amounts, people, labels.

A name is split into words: "PatientID", "patient_id" and "patient id" are "patient" and "id". The
lists are of English words, and a few German ones; a name that has none of them says nothing.
"""

import re


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
FIXED = _words(
    "birthplace birth citizenship disability disabled ethnic ethnicity gender geschlecht "
    "nationality native race religion sex"
)
THINGS = _words("account car credit house loan policy vehicle")  # that have an age
LABEL = _words(
    "accepted approval approved bad churn churned class decision default defaulted granted label "
    "outcome readmitted response result status survived target y"
)
OF_A_PERSON = _words("employment family marital personal social")  # whose status is no label


def words_of(name: str) -> frozenset[str]:
    """The words of a name, in small letters."""
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
    """Whether numbers of this name are amounts."""
    return bool(words_of(name) & AMOUNT) and not names_a_code(name)


def names_an_age(name: str) -> bool:
    """Whether the name is that of a person's age."""
    words = words_of(name)
    return bool(words & {"age", "alter"}) and not words & (THINGS | GROUPED)


def names_what_people_cannot_change(name: str) -> bool:
    """Whether the name is that of something a person is born with, or the law protects."""
    return bool(words_of(name) & FIXED)


def like_a_label(name: str) -> float:
    """How much a name is like those of columns that models predict: the share of such words."""
    words = words_of(name)
    return 0.0 if words & OF_A_PERSON else len(words & LABEL) / max(len(words), 1)
