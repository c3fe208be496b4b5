"""Population, networks and private model computed anew from the record of a veil."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from counterveil.build import fit_networks
from counterveil.cli import app
from counterveil.curator import Curator
from counterveil.curator.functional import make_plan
from counterveil.errors import RequestError
from counterveil.population import population_of
from counterveil.privacy import Budget, Statement
from counterveil.privacy.recipe import Recipe, Training
from counterveil.privacy.statement import TARGET_MODEL
from counterveil.recompute import recompute
from counterveil.schema import Binary, Label, Schema
from counterveil.veil import Veil

SHORT = Training(200, 1, 50, 1e-3, (4,), 1)


@pytest.fixture(scope="module")
def made(tmp_path_factory, schema, rows):
    path = tmp_path_factory.mktemp("recompute") / "a.veil"
    Curator(schema).release(rows, 3.0, training=SHORT, seed=7, progress=False, save_to=path)
    return path


def bits(rows):
    schema = Schema(
        label=Label(name="y", classes=(0, 1)),
        features=tuple(Binary(name=f"b{i}") for i in range(9)),
    )
    values = np.random.default_rng(0).integers(0, 2, (rows, 10))
    return schema, pd.DataFrame(values, columns=[*schema.columns, "y"])


def test_a_veil_follows_from_its_record(made):
    found = recompute(Veil.load(made), progress=False)
    assert found.equal
    assert [each.part for each in found.parts] == ["private model", "autoencoder", "prototypes"]
    assert found.alike == 1000
    said = CliRunner().invoke(app, ["inspect", str(made), "--recompute"])
    assert said.exit_code == 0, said.output
    assert "equal: all of it follows from the noisy record" in said.output
    shown = CliRunner().invoke(app, ["inspect", str(made)])
    assert "Networks: 200 samples of P~, 1 epochs" in " ".join(shown.output.split())


def test_tiny_networks_learn_by_one_thread_and_leave_the_callers_setting(schema, rows):
    """On two processors two threads took ten times as long, for the same networks."""
    usual = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        veil = Curator(schema).release(rows, 3.0, training=SHORT, seed=7, progress=False)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(usual)
    assert veil.statement.recipe.threads == 1


def test_no_byte_of_a_file_comes_from_elsewhere(made):
    """Schema, noisy record and public numbers make all of it: the rows have no other way out."""
    veil = Veil.load(made)
    told, rows = veil.statement, veil.record.units
    networks = fit_networks(
        population_of(veil.schema, veil.record), veil.schema, seed=told.recipe.seed,
        device=torch.device("cpu"), training=SHORT,
    )  # fmt: skip
    plan = make_plan(veil.schema, rows, Budget(3.0))
    statement = Statement(
        level="explainer", mechanism="functional", epsilon=3.0, accesses=veil.record.accesses,
        plan=(*plan.reasons, *plan.warnings), public_inputs=told.public_inputs,
        exclusions=(TARGET_MODEL,), versions=told.versions,
        recipe=Recipe(SHORT, 7, "cpu", told.recipe.threads),
    )  # fmt: skip
    assert any(f"rows, {rows}" in each for each in told.public_inputs)
    parts = networks.autoencoder, networks.prototypes, statement, networks.surrogate, veil.record
    assert Veil(veil.schema, *parts).to_bytes() == made.read_bytes()


@pytest.mark.long
def test_so_do_bits_and_images(digits_veil):
    schema, rows = bits(300)
    veil = Curator(schema).release(rows, 3.0, training=SHORT, progress=False)
    assert recompute(veil, progress=False).equal
    found = recompute(digits_veil, progress=False)
    assert "generator of the population" in {each.part for each in found.parts}
    assert found.equal


def test_networks_that_saw_something_else_are_found(made, schema, tmp_path):
    veil = Veil.load(made)
    statement = veil.statement.model_copy(update={"recipe": replace(veil.statement.recipe, seed=8)})
    other = veil.prototypes.clone()
    other[0, 0] = torch.nextafter(other[0, 0], torch.tensor(2.0))
    for changed, part in (
        (replace(veil, statement=statement), "autoencoder"),
        (replace(veil, prototypes=other), "prototypes"),
        (replace(veil, surrogate=veil.surrogate.plus(np.array([0.0, 1e-4]))), "private model"),
    ):
        changed.save(tmp_path / "b.veil")
        said = CliRunner().invoke(app, ["inspect", str(tmp_path / "b.veil"), "--recompute"])
        assert said.exit_code == 1
        assert "not equal" in said.output
        told = CliRunner().invoke(
            app, ["inspect", str(tmp_path / "b.veil"), "--recompute", "--json"]
        )
        content = json.loads(told.stdout)
        assert told.exit_code == 1
        assert not content["equal"]
        assert {each["part"]: each["difference"] for each in content["parts"]}[part] > 0


def test_without_a_record_there_is_nothing_to_compute(release_once, schema, rows):
    paper = release_once(schema, rows, 1, mechanism="paper", epochs=1)
    with pytest.raises(RequestError, match="no noisy record"):
        recompute(paper)
