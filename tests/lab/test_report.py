"""The report: built from the stored files and from toy ones; verdicts that go both ways."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from counterveil_lab.report import (
    claims,
    paper_values,
    part_answers,
    part_audit,
    part_distances,
    part_noise,
    part_privacy,
    part_speed,
    stored,
)
from counterveil_lab.report.blocks import Content, State, Verdict
from counterveil_lab.report.command import write
from counterveil_lab.report.numbers import Mean, average, fixed, mean_of, pick, significant, t95
from counterveil_lab.report.page import gather, html, rich
from counterveil_lab.report.rules import falls_with_epsilon, tally
from counterveil_lab.report.ways import way_of
from counterveil_lab.report.words import PARTS
from counterveil_lab.results import Row

ROOT = Path(__file__).parents[2]
NAMES = [spec.name for part in PARTS for spec in part.specs]
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)


def put(folder: Path, name: str, rows: list[Row], command: str = "") -> None:
    content = {"experiment": name, "command": command or f"counterveil-lab run {name}",
               "commit": "abc1234", "rows": rows}  # fmt: skip
    (folder / f"{name}.json").write_text(json.dumps(content))


def ours(mechanism: str, epsilon: float | str, **more: Any) -> Row:
    return {"method": "counterveil", "mechanism": mechanism, "guidance": "model", "seed": 0,
            "epsilon": epsilon, **more}  # fmt: skip


def answers(dataset: str = "mnist", *, paper: float = 0.8, functional: float = 1.0) -> list[Row]:
    """Table 2 and 3 in small, two seeds."""
    rows = []
    for seed in (0, 1):
        for epsilon in (0.025, 0.75):
            for mechanism, flips in (("paper", paper), ("functional", functional)):
                rows.append(ours(mechanism, epsilon, dataset=dataset, legal=1.0, k=10,
                                 flip_ratio=flips + (0.01 if epsilon == 0.75 else 0) * (flips < 1),
                                 flip_ratio_specified=flips, queries=500, epochs=10,
                                 distance=1.6 if mechanism == "paper" else 0.2))  # fmt: skip
                rows[-1]["seed"] = seed
        for method, distance in (("cadex-0", 0.5), ("cchvae", 1.6), ("revise", 1.5)):
            rows.append({"dataset": dataset, "method": method, "epsilon": None, "seed": seed,
                         "flip_ratio": 0.7, "flip_ratio_specified": 0.3, "distance": distance,
                         "queries": 50})  # fmt: skip
    return rows


def attacks(defence: str, naive: float, best: float) -> list[Row]:
    head = {"dataset": "adult", "defence": defence, "architecture": "known",
            "epsilon": None if defence == "no-noise" else 0.025}  # fmt: skip
    values = {"base-n": (0.75, 0.8), "base-2n": (0.76, 0.82), "drop": (0.75, 0.8),
              "naive": (naive, 0.7), "relabel": (0.77, best)}  # fmt: skip
    return [
        {**head, "queries": count, "attacker": attacker, "accuracy": accuracy - 1e-5 * count,
         "fidelity": fidelity, "predictions": "probabilities", "flip_ratio": 1.0, "seed": seed,
         "extra_queries": count if attacker in {"base-2n", "relabel"} else 0}
        for seed in (0, 1)
        for count in (250, 500)
        for attacker, (accuracy, fidelity) in values.items()
    ]  # fmt: skip


def stolen(guidance: str, fidelity: float) -> list[Row]:
    return [
        {"dataset": "adult", "defence": f"functional-{guidance}", "guidance": guidance,
         "margin": 0.5, "predictions": "labels", "architecture": "known", "seed": 0,
         "epsilon": 0.75, "queries": 500, "attacker": attacker, "extra_queries": 0,
         "fidelity": fidelity if attacker == "naive" else 0.75, "flip_ratio": 0.9, "distance": 0.4}
        for attacker in ("base-n", "base-2n", "naive")
    ]  # fmt: skip


def toys(folder: Path) -> None:
    """Every experiment in small."""
    folder.mkdir(exist_ok=True)
    put(folder, "targets", [{"dataset": "adult", "seed": s, "accuracy": 0.8 + s / 100,
                             "balanced_accuracy": None, "majority_share": 0.7}
                            for s in (0, 1)])  # fmt: skip
    errors = [ours("paper", e, dataset=d, mse=0.1 / (1 if e == "none" else e), epochs=60,
                   mse_of_pooled_mean=0.2)
              for d in ("adult", "purchase-substitute") for e in ("none", 0.75, 0.025)]  # fmt: skip
    put(folder, "fig-mse", errors)
    put(folder, "fig-reconstructions", errors)
    put(folder, "paper-adult", [ours("paper", e, dataset="adult", mse=0.1, flip_ratio=0.95,
                                     distance=1.5, legal=1.0, seconds_per_query=0.001)
                                for e in ("none", 0.75, 0.025)])  # fmt: skip
    put(folder, "table-fr", [*answers(), *answers("purchase-substitute")])
    put(folder, "table-ad", answers(), "counterveil-lab run table-ad --quick")
    put(folder, "frontier", [{**row, "guidance": g} for row in answers()
                             if row.get("mechanism") == "functional"
                             for g in ("model", "surrogate")])  # fmt: skip
    put(folder, "fig-time", [{**row, "seconds_for_ten": 0.1, "run": "2026", "runs": 5}
                             for row in answers()])  # fmt: skip
    put(
        folder,
        "fig-case",
        [
            ours(
                "paper",
                0.75,
                dataset="mnist",
                way="published",
                target=5,
                f_says=4,
                valid=False,
                probability=0.1,
                distance=None,
            )
        ],
    )
    put(folder, "table-extraction", attacks("paper", 0.6, 0.8) + attacks("no-noise", 0.8, 0.9))
    put(folder, "fig-membership", [
        *(row for d in ("paper", "no-noise-published") for t in ("f'", "cf")
          for row in scored(d, t, 0.5)),
        {"dataset": "adult", "attack": "linkage", "defence": "functional-model", "epsilon": 0.75,
         "target": "cf", "control": "none", "seed": 0, "counterfactuals": 9, "auc": None,
         **{f"{kind}_excess{end}": 0.0 for kind in ("exact", "near")
            for end in ("", "_low", "_high")}},
    ])  # fmt: skip
    put(folder, "fig-attribute", guessed(0.0))
    put(folder, "fig-tradeoff",
        [*stolen("model", 0.9), *stolen("surrogate", 0.8)])  # fmt: skip
    for name in ("audit", "bench-search", "bench-gpu", "bench-release"):
        text = (ROOT / "results" / f"{name}.json").read_text()
        (folder / f"{name}.json").write_text(text)
    (folder / "fig-mse.png").write_bytes(PIXEL)
    (folder / "fig-mse.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    (folder / "fig-time-adult.png").write_bytes(PIXEL)


class Page(HTMLParser):
    """Ids, links, sources and pictures of a page; tags must close in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.loads: list[str] = []
        self.alts: list[str | None] = []
        self.open: list[str] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag not in {"meta", "img", "br"}:
            self.open.append(tag)
        self.ids += [found["id"] or ""] if "id" in found else []
        self.links += [found["href"] or ""] if "href" in found else []
        self.loads += [found["src"] or ""] if "src" in found else []
        self.alts += [found.get("alt")] if tag == "img" else []

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toys")
    toys(folder)
    return folder


def check(text: str) -> Page:
    """What holds of any page."""
    page = Page(text)
    assert len(page.ids) == len(set(page.ids))
    assert all(re.fullmatch(r"[a-z][a-z0-9-]*", name) for name in page.ids)
    assert all(link.startswith("#") and link[1:] in page.ids for link in page.links)
    assert all(source.startswith("data:image/") for source in page.loads)
    assert all(page.alts)
    assert not re.search(r"@import|url\(|<script|<link", text)
    words = re.sub(r"base64,[^\"]*", "", text)
    assert not re.search(r"\b(nan|NaN|None|inf)\b", words)
    return page


def test_the_stored_results_make_a_page_and_a_twin(tmp_path: Path) -> None:
    said = write(ROOT / "results", tmp_path / "page.html", tmp_path / "docs/results.md")
    text = (tmp_path / "page.html").read_text()
    check(text)
    twin = (tmp_path / "docs/results.md").read_text()
    assert not re.search(r"\b(nan|NaN|None)\b", twin)
    assert str(tmp_path) not in twin
    assert "`page.html`" in twin
    assert said[:2] == [f"written: {tmp_path}/page.html", f"written: {tmp_path}/docs/results.md"]
    for section in gather(ROOT / "results").sections:
        assert section.title in twin


def test_the_page_of_all_experiments(full: Path) -> None:
    report = gather(full)
    page = check(html(report))
    assert set(NAMES) <= set(page.ids)
    assert not [section.name for section in report.sections if section.missing]
    for section in report.sections:
        assert section.content.tables, section.name
        assert section.content.verdicts, section.name


def test_the_twin_has_the_same_tables(full: Path, tmp_path: Path) -> None:
    write(full, tmp_path / "results/report.html", tmp_path / "docs/results.md")
    twin = (tmp_path / "docs/results.md").read_text()
    assert "`results/report.html`" in twin
    tables = [t for s in gather(full).sections for t in s.content.tables]
    assert all(f"**{table.title}**" in twin for table in tables)
    assert "x\\|y" in twin  # a pipe inside a cell
    for block in twin.split("\n\n"):
        lines = block.splitlines()
        if lines and lines[0].startswith("| "):
            assert len({re.sub(r"\\\|", "", line).count("|") for line in lines}) == 1


def test_other_data_is_marked_and_never_counted(full: Path) -> None:
    (section,) = [s for s in gather(full).sections if s.name == "table-fr"]
    table = section.content.tables[0]
    place = table.columns.index("Purchase substitute")
    cells = [row[place] for row in table.rows if row[place].printed]
    assert cells
    assert all(cell.other_data for cell in cells)
    assert not any(row[table.columns.index("MNIST")].other_data for row in table.rows)
    text = html(gather(full))
    assert 'class="printed other">paper 0.722†' in text
    assert "They are not comparable" in text
    verdict = part_answers.at_or_above_printed(answers("purchase-substitute", functional=0.1))
    assert verdict.state is State.OPEN
    assert "not counted" in verdict.detail


def test_an_empty_folder_says_how_to_make_every_file(tmp_path: Path) -> None:
    said = write(tmp_path, tmp_path / "page.html", None)
    assert len(said) == 1 + len(NAMES)
    assert any("counterveil-lab run table-fr" in line for line in said)
    assert any("counterveil audit" in line for line in said)
    check((tmp_path / "page.html").read_text())


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"rows": 3}', '{"rows": []}'])
def test_a_broken_file_is_a_missing_one(tmp_path: Path, content: str) -> None:
    (tmp_path / "fig-mse.json").write_text(content)
    said = write(tmp_path, tmp_path / "page.html", tmp_path / "results.md")
    assert any(line.startswith("fig-mse:") for line in said)


@pytest.mark.parametrize("name", NAMES)
def test_rows_without_columns_or_values_break_nothing(tmp_path: Path, name: str) -> None:
    put(
        tmp_path,
        name,
        [
            {},
            {"dataset": None},
            {"dataset": "adult", "seed": 0},
            {
                "dataset": "new",
                "method": "new",
                "epsilon": None,
                "flip_ratio": None,
                "mechanism": None,
                "defence": "new",
                "attacker": "new",
                "attack": "new",
                "margin": None,
                "advantage": None,
                "part": "peers",
                "batch": None,
            },
        ],
    )
    write(tmp_path, tmp_path / "page.html", tmp_path / "results.md")
    check((tmp_path / "page.html").read_text())


def test_a_file_without_a_section_is_shown_as_stored(tmp_path: Path) -> None:
    put(tmp_path, "Odd_one", [{"what": "a", "x": 1.5, "seed": 0}, {"what": "b", "x": 2.5}])
    section = gather(tmp_path).sections[-1]
    assert (section.name, section.title) == ("file-odd-one", "Odd_one")
    assert [row[0].text for row in section.content.tables[0].rows] == ["a", "b"]
    check(html(gather(tmp_path)))


def test_toy_size_is_said(full: Path) -> None:
    (section,) = [s for s in gather(full).sections if s.name == "table-ad"]
    assert "mean nothing" in section.warning


def test_pictures(full: Path, tmp_path: Path) -> None:
    every = ["fig-mse", "fig-time", "fig"]
    (picture,) = stored.pictures(full, "fig-mse", every, {"fig-mse": "errors"})
    assert picture.source.startswith("data:image/svg+xml;base64,")
    assert picture.alt == "errors"
    (part,) = stored.pictures(full, "fig-time", every, {})
    assert part.name == "fig-time-adult"
    assert not stored.pictures(full, "fig", every, {})  # they belong to longer names
    (tmp_path / "a.svg").write_bytes(b" " * stored.LARGEST)
    assert not stored.pictures(tmp_path, "a", ["a"], {})
    (tmp_path / "a.png").write_bytes(PIXEL)
    (small,) = stored.pictures(tmp_path, "a", ["a"], {})
    assert small.source.startswith("data:image/png")


def test_the_documentation_builds(full: Path, tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    docs = tmp_path / "docs"
    write(full, tmp_path / "report.html", docs / "results.md")
    for other in ("privacy", "soundness", "datasets"):
        (docs / f"{other}.md").write_text(f"# {other}\n")
    (tmp_path / "mkdocs.yml").write_text("site_name: test\nstrict: true\n")
    subprocess.run([sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"], cwd=tmp_path,
                   check=True)  # fmt: skip
    assert (tmp_path / "site/results/index.html").exists()


def test_means_and_digits() -> None:
    for freedom in (1, 2, 4, 9, 19, 25, 60, 500):
        assert t95(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), abs=0.006)
    assert mean_of([]) is None
    assert mean_of([2.0]) == Mean(2.0, None, 1)
    found = mean_of([1.0, 2.0, 3.0])
    assert found is not None
    assert found.half == pytest.approx(4.303 / 3**0.5)
    assert Mean(0.93612, 0.2311, 3).texts(3) == ("0.94", "± 0.23")
    assert Mean(0.93612, 0.0411, 3).texts(3) == ("0.94", "± 0.04")
    assert Mean(0.93612, 1e-9, 3).texts(3) == ("0.936", "")
    assert Mean(1.0, 0.0, 3).texts(3) == ("1.000", "")
    assert Mean(12.0, 31.0, 3).texts(3) == ("12", "± 31")
    assert fixed(-0.0001, 2) == "0.00"
    assert significant(12345.6) == "12,300"
    assert significant(0.012345) == "0.0123"
    rows = [{"seed": 0, "x": 1.0}, {"seed": 0, "x": 3.0}, {"seed": 1, "x": 4.0},
            {"seed": 2, "x": None}, {"seed": 3, "x": float("nan")}]  # fmt: skip
    two = average(rows, "x")
    assert two is not None
    assert (two.value, two.n) == (3.0, 2)
    assert pick([{"epsilon": "none"}], epsilon=float("inf"))


def test_text_is_escaped() -> None:
    assert str(rich("`a<b` *c* <d>")) == "<code>a&lt;b</code> <i>c</i> &lt;d&gt;"


def test_guarantees() -> None:
    assert way_of(ours("paper", 0.75)).level == "none"
    assert way_of(ours("functional", 0.75)).level == "explainer"
    assert way_of({**ours("functional", 0.75), "guidance": "surrogate"}).level == "end-to-end"
    assert way_of(ours("functional", "none")).level == "none"
    assert way_of({"method": "revise"}).level == ""


def test_paper_values() -> None:
    assert paper_values.flip("dpc-0.025", "mnist", True) == "0.720"
    assert paper_values.flip("dpc-0.025", "adult", True) == ""
    assert paper_values.flip("cchvae", "texas-substitute", False) == "0.728"
    assert paper_values.distance("revise", "purchase-substitute") == "3.30"
    assert paper_values.extraction("adult", "dpc", "unknown", 2000) == "65.1"
    assert paper_values.extraction("texas-substitute", "base", "known", 7) == "28.6"
    assert paper_values.extraction("adult", "dpc", "known", 7) == ""
    assert not paper_values.same_data("homecredit")
    datasets = (ROOT / "docs/datasets.md").read_text()
    for name, (rows, _, _, classes) in part_noise.OUR_DATA.items():
        line = next(line for line in datasets.splitlines() if line.startswith(f"| `{name}`"))
        parts = [
            int(n.replace(",", "")) for n in re.findall(r"[\d,]+ \+ [\d,]+", line)[0].split(" + ")
        ]
        assert f"{sum(parts):,}" == rows
        assert f"| {classes} |" in line


def state(content: Content, claim: str) -> State:
    (verdict,) = [v for v in content.verdicts if claim in v.claim]
    return verdict.state


def test_tally() -> None:
    good, bad = {"adult": (True, "1")}, {"mnist": (False, "2")}
    assert tally("c", good, "r").state is State.HOLDS
    assert tally("c", bad, "r").state is State.FAILS
    both = tally("c", {**good, **bad}, "r")
    assert both.state is State.PARTLY
    assert both.detail == "On 1 of 2 datasets; not on MNIST (2)"
    assert tally("c", {}, "r").state is State.OPEN


def test_error_over_epsilon() -> None:
    assert falls_with_epsilon({0.1: 1.0}) is None
    down, up = falls_with_epsilon({0.1: 3, 0.5: 2, 1: 1}), falls_with_epsilon({0.1: 1, 1: 2})
    wild = falls_with_epsilon({0.1: 3, 0.2: 0, 0.3: 1, 0.4: 2, 0.5: 2.5})
    assert down
    assert up
    assert wild
    assert (down[0], up[0], wild[0]) == (True, False, False)


def swapped(rows: list[Row]) -> list[Row]:
    """The two mechanisms in each other's place."""
    names = {"paper": "functional", "functional": "paper"}
    return [{**row, "mechanism": names.get(str(row.get("mechanism")))} for row in rows]


BOTH_WAYS: list[tuple[str, list[Row], list[Row], Any]] = [
    ("printed", answers(), answers(functional=0.5), part_answers.at_or_above_printed),
    ("not below", answers(), answers(functional=0.5), part_answers.not_below_paper),
    ("less noise", answers(), [{**r, "epsilon": {0.025: 0.75, 0.75: 0.025}.get(r["epsilon"])}
                               for r in answers()], part_answers.more_noise_flips_less),
    ("specified", answers(), answers(functional=0.1),
     lambda rows: part_answers.specified_above_peers(rows, "functional")),
    ("most peers", answers(), answers(paper=0.1), part_answers.most_peers_beaten),
    ("legal", answers(), [{**r, "legal": 0.9} for r in answers()], part_answers.all_legal),
    ("farther", answers(), swapped(answers()), part_distances.farther_than_original_space),
    ("as near", answers(), [{**r, "distance": 9.0 if r.get("mechanism") else 1.0}
                            for r in answers()], part_distances.near_latent_methods),
    ("nearer", [{**r, "flip_ratio": 1.0} for r in answers()],
     [{**r, "flip_ratio": 1.0} for r in swapped(answers())], part_distances.nearer_than_peers),
    ("below printed", answers(), [{**r, "distance": 9.0} for r in answers()],
     part_distances.below_printed),
    ("helps", attacks("no-noise", 0.8, 0.9), attacks("no-noise", 0.6, 0.9),
     claims.helps_without_privacy),
    ("below base", attacks("paper", 0.6, 0.8), attacks("paper", 0.8, 0.8),
     lambda rows: claims.below_base(rows, "paper")),
    ("queries", attacks("paper", 0.6, 0.8),
     [{**r, "accuracy": r["queries"] / 1000} for r in attacks("paper", 0.6, 0.8)],
     claims.stronger_with_queries),
    ("no gain", attacks("paper", 0.6, 0.8), attacks("paper", 0.6, 0.9),
     lambda rows: claims.no_gain(rows, "paper")),
    ("no time", [ours("paper", e, seconds_per_query=1.0) for e in ("none", 1.0)],
     [ours("paper", e, seconds_per_query=s) for e, s in (("none", 1.0), (1.0, 2.0))],
     part_noise.no_time_for_noise),
    ("mean", [ours("functional", 0.75, dataset="adult", mse=0.1, mse_of_pooled_mean=0.2)],
     [ours("functional", 0.75, dataset="adult", mse=0.3, mse_of_pooled_mean=0.2)],
     part_noise.better_than_the_mean),
    ("slower", [{**r, "seconds": 1.0} for r in answers()],
     [{**r, "seconds": 9.0 if r.get("mechanism") else 1.0} for r in answers()],
     part_speed.not_slower),
    ("latent", [{**r, "seconds": 9.0 if r["method"] == "cadex-0" else 1.0} for r in answers()],
     [{**r, "seconds": 1.0 if r["method"] == "cadex-0" else 9.0} for r in answers()],
     part_speed.latent_faster),
    ("fastest", [{**r, "seconds_per_query": 1.0 if r.get("mechanism") else 9.0} for r in answers()],
     [{**r, "seconds_per_query": 9.0 if r.get("mechanism") else 1.0} for r in answers()],
     part_speed.fastest),
]  # fmt: skip


@pytest.mark.parametrize(("good", "bad", "decide"), [case[1:] for case in BOTH_WAYS],
                         ids=[case[0] for case in BOTH_WAYS])  # fmt: skip
def test_verdicts_go_both_ways(good: list[Row], bad: list[Row], decide: Any) -> None:
    found: list[Verdict] = [decide(rows) for rows in (good, bad, [])]
    assert [verdict.state for verdict in found] == [State.HOLDS, State.FAILS, State.OPEN]
    assert all(verdict.rule for verdict in found)


def test_targets_and_errors_go_both_ways() -> None:
    for accuracy, expected in ((0.9, State.HOLDS), (0.8, State.FAILS)):
        rows = [{"dataset": "adult", "seed": 0, "accuracy": accuracy}]
        assert state(part_noise.targets(rows), "accurate") is expected
    for sign, expected in ((1, State.HOLDS), (-1, State.FAILS)):
        rows = [ours("paper", e, dataset="adult", mse=e ** (-sign)) for e in (0.1, 0.5, 1.0)]
        assert state(part_noise.mse(rows), "rises as ε falls") is expected


def test_case_goes_both_ways() -> None:
    for valid in (True, False):
        rows = [ours(m, 0.75, way="w", valid=valid, f_says=5) for m in ("paper", "functional")]
        found = part_noise.case(rows)
        assert state(found, "misleads") is (State.FAILS if valid else State.HOLDS)
        assert state(found, "accepts") is (State.HOLDS if valid else State.FAILS)


def scored(defence: str, target: str, auc: float, control: str = "none") -> list[Row]:
    return [
        {"dataset": "adult", "attack": "lira", "defence": defence, "target": target, "seed": seed,
         "epsilon": 0.025 if defence == "paper" else None, "control": control, "auc": auc,
         "auc_first": auc, "auc_second": auc + (seed - 0.5) / 1000, "auc_second_low": auc - 0.01,
         "auc_second_high": auc + 0.01, "tpr_at_1": None}
        for seed in (0, 1)
    ]  # fmt: skip


def guessed(advantage: float) -> list[Row]:
    return [
        {"dataset": "adult", "defence": "paper", "epsilon": 0.025, "target": "f'", "seed": 0,
         "control": "none", "who": "members", "value": value, "balanced_accuracy": 0.5,
         "advantage": advantage if value == "all" else None, "advantage_low": advantage - 0.05,
         "advantage_high": advantage + 0.05, "imputation": 0.5, "precision": 0.4}
        for value in ("all", "x|y")
    ]  # fmt: skip


def test_membership_goes_both_ways() -> None:
    for own, other, less, chance in (
        (0.5, 0.7, State.HOLDS, State.HOLDS),
        (0.7, 0.6, State.FAILS, State.FAILS),
        (0.4, 0.6, State.HOLDS, State.FAILS),  # the wrong way round is no chance either
    ):
        made = [row for target in ("f'", "cf")
                for row in scored("paper", target, own)
                + scored("no-noise-published", target, other)]  # fmt: skip
        assert part_privacy.less_than_without_privacy(made, "paper").state is less
        assert part_privacy.at_chance(made, "paper").state is chance
    for calm, caught, expected in ((0.5, 0.8, State.HOLDS), (0.6, 0.4, State.FAILS)):
        made = scored("none", "f", calm, "disjoint") + scored("none", "f", caught, "overfitted")
        found = [v for v in part_privacy.membership(made).verdicts if "Control" in v.claim]
        assert [verdict.state for verdict in found] == [expected, expected]
    assert part_privacy.membership(made).tables


def test_a_single_seed_settles_no_gain() -> None:
    alone = [row for row in attacks("paper", 0.6, 0.9) if row["seed"] == 0]
    assert claims.no_gain(alone, "paper").state is State.OPEN


def test_attribute_and_tradeoff_go_both_ways() -> None:
    for more, expected in ((0.0, State.HOLDS), (0.1, State.FAILS)):
        assert state(part_privacy.attribute(guessed(more)), "gives away") is expected
        rows = [*stolen("model", 0.85), *stolen("surrogate", 0.8 + more)]
        assert state(part_privacy.tradeoff(rows), "thief") is expected


def test_audit_goes_both_ways() -> None:
    def rows(refuted: bool, bound: float) -> list[Row]:
        return [
            {"mechanism": m, "view": "coefficients", "pair": "p", "claimed_epsilon": 1.0,
             "bound": bound, "ceiling": 9.0, "refuted": refuted, "delta": 0.0}
            for m in ("functional", "paper", "control: x")
        ]  # fmt: skip

    calm, alarmed = (part_audit.audit(rows(*how)) for how in ((False, 0.5), (True, 1.5)))
    assert state(calm, "No promise") is State.HOLDS
    assert state(calm, "planted fault") is State.FAILS
    assert state(calm, "worst pair") is State.FAILS
    assert state(alarmed, "No promise") is State.FAILS
    assert state(alarmed, "planted fault") is State.HOLDS
    assert state(alarmed, "worst pair") is State.HOLDS


def test_benchmarks_go_both_ways() -> None:
    for rate, expected in ((60e6, State.HOLDS), (1e6, State.FAILS)):
        rows = [{"method": "counterveil-unpolished", "device": "d", "batch": 1, "seed": 0,
                 "mechanism": "functional", "answers_per_second": rate}]  # fmt: skip
        assert state(part_speed.bench_gpu(rows), "A GPU") is expected
    for peak, expected in ((105.0, State.HOLDS), (200.0, State.FAILS)):
        rows = [{"rows": n, "peak_memory_mib": m} for n, m in ((10, 100.0), (100, peak))]
        assert state(part_speed.bench_release(rows), "Memory") is expected
