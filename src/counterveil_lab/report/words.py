"""What the report says around its numbers: chapters, sections, promises. No result stands here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from counterveil.curator.paper import WHY_NOMINAL
from counterveil.privacy import Level
from counterveil_lab.report import (
    part_answers,
    part_attacks,
    part_audit,
    part_distances,
    part_noise,
    part_privacy,
    part_speed,
)
from counterveil_lab.report.blocks import Cell, Content, Table
from counterveil_lab.results import Row

TITLE = "Private counterfactuals, measured"
PAPER = "*Differentially Private Counterfactuals via Functional Mechanism* (Yang et al. 2022)"
LEAD = (
    f"Every stored result of counterveil beside the numbers printed in {PAPER}, “the paper”. "
    "`paper` is its method as published, `functional` the same idea with a proved ε, `dpsgd` the "
    "usual alternative. All tables and all verdicts are computed from the files named at the end."
)
FURTHER = ("Further files", "Stored rows that have no section of their own.")
OTHER_DATA = (
    "† Other data: the paper's number is for its own table, ours for a sample of 14.9 % "
    "(HomeCredit) or a substitute of the same form (Purchase, Texas). They are not comparable."
)
READING = (
    "Numbers are means over seeds; ± is half of the 95 % t-interval of that mean. Where only one "
    "run was made there is no interval, and a difference may be chance.",
    "The paper's printed value stands with ours, marked *paper*. Where the rows behind the two are "
    "not the same it carries a dagger, and no verdict counts it.",
    "The best value of a column is bold, among methods asked the same queries of the same data; "
    "distances only among those that answer at least 95 % of the queries.",
    "The settings of mechanism and search were chosen on these datasets, partly on the same "
    "held-out queries.",
    "Distance is L2 over encoded columns between 0 and 1; a changed category adds √2.",
)


@dataclass(frozen=True)
class Spec:
    """One experiment: where it belongs, what one sees, and who makes tables of its rows."""

    name: str
    title: str
    place: str
    sees: str
    build: Callable[[Sequence[Row]], Content]
    alt: str = ""
    made_by: str = ""

    @property
    def words(self) -> str:
        """What its figures show, for those who do not see them."""
        return self.alt or f"{self.title}: {self.sees}".replace("`", "")

    @property
    def remedy(self) -> str:
        """How to get its file."""
        return self.made_by or f"counterveil-lab run {self.name}"


@dataclass(frozen=True)
class Part:
    """Sections that answer one question."""

    name: str
    title: str
    lead: str
    specs: tuple[Spec, ...]


PARTS = (
    Part("noise", "Does the noise do what it should?",
         "Target models, and autoencoders trained under noise: the smaller ε, the less should be "
         "left of the data.",
         (
             Spec("targets", "Target models", "Table 4, last column",
                  "How accurate the models are that get explained.", part_noise.targets),
             Spec("fig-mse", "Reconstruction error over ε", "Figure 2",
                  "Error of the autoencoder on held-out rows, for each dataset and mechanism.",
                  part_noise.mse,
                  "Lines of reconstruction error over ε, one panel a dataset, one line a "
                  "mechanism."),
             Spec("fig-reconstructions", "Reconstructed digits", "Figure 3",
                  "Held-out digits after a pass through autoencoders of falling ε.",
                  part_noise.reconstructions,
                  "Rows of handwritten digits reconstructed at several ε, below the originals."),
             Spec("paper-adult", "The published method on Adult", "Tables 2 and 3, row Adult",
                  "Mechanism `paper` with the published number of epochs and the published "
                  "search, over ε.", part_noise.paper_adult),
         )),
    Part("answers", "How good are the answers?",
         "500 held-out queries, legal rows only, beside published methods that promise no "
         "privacy.",
         (
             Spec("table-fr", "Flip ratio", "Table 2",
                  "The share of queries whose decision is flipped: to any other class, and to one "
                  "drawn at random.", part_answers.flip_ratios),
             Spec("table-ad", "Distance", "Table 3",
                  "How far answers lie from their queries.", part_distances.distances),
             Spec("frontier", "Over ε, with both guarantees", "beyond the paper",
                  "The same search on veils of rising ε. With guidance `surrogate` the target "
                  "model is consulted for nothing, and asked only afterwards whether it agrees.",
                  part_answers.frontier,
                  "Flip ratio, distance, distance to the nearest real row, and flip ratio with "
                  "guidance surrogate, each over ε, one line a mechanism."),
             Spec("fig-time", "Time of ten queries", "Figure 4",
                  "Seconds for ten queries, several runs over different queries.",
                  part_speed.fig_time,
                  "Bars of the seconds each method takes for ten queries, by dataset."),
             Spec("fig-case", "A case: 9 becomes 5", "Figure 8",
                  "One digit, its counterfactuals, and where the model looks.", part_noise.case,
                  "A handwritten 9, counterfactuals towards a 5, what changed, and GradCAM maps."),
         )),
    Part("attacks", "What do attackers get?",
         "The paper's attacks, attackers who know of the defence, and a game against the promise "
         "itself.",
         (
             Spec("table-extraction", "Model extraction", "Table 4",
                  "How well f can be rebuilt from predictions and counterfactuals. Ending below "
                  "predictions alone is poisoning, not privacy, so a defence is judged by the best "
                  "of all attackers.", part_attacks.extraction,
                  "Agreement of the extracted model with f over the number of queries, by defence, "
                  "beside predictions alone."),
             Spec("fig-membership", "Membership inference", "Figure 5",
                  "Whether somebody was among the training rows, read from f itself, from the "
                  "extracted f', or from counterfactuals.", part_privacy.membership,
                  "AUC of membership attacks by dataset, attack and defence."),
             Spec("fig-attribute", "Attribute inference", "Figure 6",
                  "Whether a person's sensitive attribute can be read from the extracted model, "
                  "beyond what the other attributes give away anyway.", part_privacy.attribute,
                  "Accuracy of attribute inference for each value, by defence."),
             Spec("fig-tradeoff", "Privacy against usefulness", "beyond the paper",
                  "What a defence costs in answers and saves in leakage.", part_privacy.tradeoff,
                  "Flip ratio or distance against the success of the best attack, by defence."),
             Spec("audit", "The audit", "beyond the paper",
                  "Two tables that differ in one record: how well can a release of the one be told "
                  "from a release of the other? Certified lower bounds on ε.", part_audit.audit,
                  made_by="counterveil audit --out results/audit.json"),
         )),
    Part("speed", "How fast is it?",
         "Time and memory of search and release.",
         (
             Spec("bench-search", "Search on one core", "beyond the paper",
                  "Time and quality on Adult beside other methods, the same model and queries.",
                  part_speed.bench_search,
                  "Time a query and quality of each method on Adult.",
                  "counterveil-lab bench search"),
             Spec("bench-gpu", "Search on a GPU", "beyond the paper",
                  "Answers a second, each found and checked, in calls of a million.",
                  part_speed.bench_gpu, made_by="counterveil-lab bench gpu"),
             Spec("bench-release", "Release over rows", "beyond the paper",
                  "Reading and counting in one pass.", part_speed.bench_release,
                  made_by="counterveil-lab bench release"),
         )),
)  # fmt: skip

ALTS = {
    "bench-search-peers": "Milliseconds a query and distance of every method, one bar each.",
    "bench-search-batch": "Milliseconds a query over the number of queries in one call.",
    "bench-search-floor": "How many times longer than the matrix products alone a query takes.",
    "bench-search-features": "Milliseconds a query over the number of features.",
    "bench-search-boosted": "Time, flip ratio and distance with boosted trees as target models.",
    "bench-search-objective": "Objective, flip ratio and distance of both searches by dataset.",
}

MECHANISMS = (
    ("paper", Level.NONE.value,
     "The ε is nominal. Why: " + "; ".join(f"({i}) {why}" for i, why in enumerate(WHY_NOMINAL, 1))
     + "."),
    ("functional", "explainer or end-to-end",
     "(ε, δ)-differential privacy of one record (or one person), replace-one, the number of rows "
     "public; pure ε for δ = 0. Exact discrete noise on integer counts, from one reading of the "
     "rows; everything else is post-processing."),
    ("dpsgd", "explainer or end-to-end",
     "(ε, δ)-differential privacy of one record, replace-one, δ above 0. The noise of training is "
     "made of floating-point numbers: neither exact nor cryptographic."),
    ("DiCE, CADEX, C-CHVAE, REVISE", "no claim",
     "Published methods, which see the training rows and promise no privacy."),
)  # fmt: skip
HOW = {
    Level.NONE: "mechanism `paper`, and anything without noise",
    Level.EXPLAINER: "`functional` or `dpsgd`, guidance `model`",
    Level.END_TO_END: "`functional` or `dpsgd`, guidance `surrogate`",
    Level.COMPOSED: "as explainer, with a target model trained under a declared budget",
}


def promise_tables() -> tuple[Table, Table]:
    """What the levels mean, and what each mechanism promises."""
    levels = Table(
        "Levels of guarantee",
        ("level", "what is guaranteed", "how to get it"),
        tuple((Cell(level.value), Cell(f"{level.meaning[0].upper()}{level.meaning[1:]}."),
               Cell(HOW[level])) for level in Level),
    )  # fmt: skip
    mechanisms = Table(
        "Statements of the mechanisms",
        ("mechanism", "guarantee", "statement"),
        tuple((Cell(f"`{name}`" if level != "no claim" else name), Cell(level), Cell(words))
              for name, level, words in MECHANISMS),
    )  # fmt: skip
    return levels, mechanisms
