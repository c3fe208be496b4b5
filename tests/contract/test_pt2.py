"""A .pt2 file is data: whatever is in it, opening it without trust runs nothing."""

import io
import zipfile

import pytest
import torch
from archives import GRAPH, WEIGHTS, changed, forge, members_of
from asking import ask_points
from torch import nn

from counterveil.errors import ModelError
from counterveil.models import load_model, save_exported
from counterveil.models.exported import read_graph


class Touch:
    """A pickle that leaves a mark when it is opened."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.fixture
def honest(schema, tmp_path):
    save_exported(nn.Linear(schema.width, 2), schema, tmp_path / "m.pt2")
    return members_of(tmp_path / "m.pt2")


def pickled(thing):
    content = io.BytesIO()
    torch.save(thing, content)
    return content.getvalue()


def test_nothing_of_an_archive_is_run(honest, schema, tmp_path):
    mark = tmp_path / "mark"

    def lie(config):
        next(iter(config["config"].values()))["use_pickle"] = True

    members = changed(honest, WEIGHTS, lie)
    members["archive/data/weights/weight_0"] = pickled(Touch(mark))
    path = forge(members, tmp_path / "evil.pt2")
    with pytest.raises(ModelError, match=r"holds a pickle.*--trust-pickle"):
        load_model(path, schema)
    assert not mark.exists()
    mark = tmp_path / "mark"
    members = honest | {"archive/data/sample_inputs/model.pt": pickled(Touch(mark))}
    path = forge(members, tmp_path / "evil.pt2")
    assert load_model(path, schema).classes == 2
    assert not mark.exists()
    mark = tmp_path / "mark"
    text = f"open({str(mark)!r}, 'w')"

    def plant(content):
        content["guards_code"] = [text]
        values = content["graph_module"]["graph"]
        values["sym_int_values"] = {"s0": {"as_expr": {"expr_str": text, "hint": None}}}
        for value in values["tensor_values"].values():
            value["sizes"] = [{"as_expr": {"expr_str": text, "hint": None}}]

    assert load_model(forge(changed(honest, GRAPH, plant), tmp_path / "e.pt2"), schema)
    assert not mark.exists()


def node_target(target):
    return lambda content: content["graph_module"]["graph"]["nodes"][0].update(target=target)


@pytest.mark.parametrize(
    "target",
    ["torch.load", "torch.ops.load_library", "torch.ops.aten.from_file.default", "math.sin",
     "_operator.attrgetter", "#extension", "os.system", "torch.ops.aten.as_strided.default"],
)  # fmt: skip
def test_operators_beyond_the_list_are_refused(honest, tmp_path, target):
    path = forge(changed(honest, GRAPH, node_target(target)), tmp_path / "evil.pt2")
    with pytest.raises(ModelError, match="not on the list of operators"):
        read_graph(path)


@pytest.mark.parametrize("kind", ["as_custom_obj", "as_graph", "as_operator", "as_device"])
def test_odd_arguments_are_refused(honest, tmp_path, kind):
    def plant(content):
        content["graph_module"]["graph"]["nodes"][0]["inputs"][0]["arg"] = {kind: {"name": "x"}}

    with pytest.raises(ModelError, match="argument of the kind"):
        read_graph(forge(changed(honest, GRAPH, plant), tmp_path / "e.pt2"))


def test_damage_and_compression(honest, schema, tmp_path):
    for name in (WEIGHTS, GRAPH, "archive/data/weights/weight_0"):
        broken = honest | {name: honest[name][: len(honest[name]) // 2]}
        with pytest.raises(ModelError, match=r"cannot be read as a \.pt2"):
            load_model(forge(broken, tmp_path / "e.pt2"), schema)
        absent = {key: value for key, value in honest.items() if key != name}
        with pytest.raises(ModelError, match=r"cannot be read as a \.pt2"):
            load_model(forge(absent, tmp_path / "e.pt2"), schema)
    with pytest.raises(ModelError, match="compressed"):
        load_model(forge(honest, tmp_path / "e.pt2", zipfile.ZIP_DEFLATED), schema)


class Everyday(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.width = width
        self.convolve = nn.Sequential(nn.Conv1d(1, 3, 3, padding=1), nn.BatchNorm1d(3), nn.ReLU())
        self.normal = nn.LayerNorm(3 * width)
        self.last = nn.Linear(3 * width, 2)
        self.drop = nn.Dropout()

    def forward(self, points):
        hidden = self.convolve(points[:, None, :]).flatten(1)
        hidden = self.drop(nn.functional.gelu(self.normal(hidden)))
        left, right = hidden.chunk(2, 1)
        top, _ = torch.max(torch.cat([left, right], 1), dim=1, keepdim=True)
        return self.last(torch.where(hidden > 0, hidden, 0.0) / (1 + top**2))


def test_everyday_networks_answer_as_in_torch(schema, tmp_path):
    torch.manual_seed(0)
    model = Everyday(schema.width)
    points = torch.rand(9, schema.width)
    save_exported(model, schema, tmp_path / "m.pt2")
    with torch.no_grad():
        expected = model.eval()(points)
        torch.testing.assert_close(read_graph(tmp_path / "m.pt2")(points), expected)
    asked = points.requires_grad_()
    read_graph(tmp_path / "m.pt2")(asked).sum().backward()
    assert asked.grad is not None
    trusted = load_model(tmp_path / "m.pt2", schema, trust_pickle=True)
    plain = load_model(tmp_path / "m.pt2", schema)
    torch.testing.assert_close(ask_points(plain, points), ask_points(trusted, points))


def test_a_sigmoid_at_the_end_settles_what_one_output_means(schema, tmp_path):
    model = nn.Sequential(nn.Linear(schema.width, 1), nn.Sigmoid(), nn.Flatten(0))
    save_exported(model, schema, tmp_path / "m.pt2")
    with pytest.raises(ModelError, match=r"one number a row.*--model-classes granted"):
        load_model(tmp_path / "m.pt2", schema)
    assert load_model(tmp_path / "m.pt2", schema, classes=["granted"]).classes == 2
