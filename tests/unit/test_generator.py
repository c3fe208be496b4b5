"""The generator of images: what it learns, what it draws, and how it travels in a veil."""

import io
import json
from dataclasses import asdict, replace

import numpy as np
import pandas as pd
import pytest
import torch
from archives import members_of

from counterveil.build import Training, epochs_of, fit_networks
from counterveil.curator import Curator
from counterveil.encoding import Encoding
from counterveil.errors import RequestError, VeilError
from counterveil.networks import disturbed
from counterveil.population import FeaturePopulation, population_of
from counterveil.population.generator import (
    Generator,
    GeneratorSize,
    _Normalised,
    train_generator,
)
from counterveil.privacy.record import to_members
from counterveil.schema import Label, Pixels, Schema
from counterveil.search import Explainer
from counterveil.veil import Veil

IMAGE = Pixels(name="p", height=6, breadth=6, levels=16)
SCHEMA = Schema(features=(IMAGE,), label=Label(name="y", classes=("left", "right")))
SHORT = Training(400, 2, 128, 2e-3, (16, 8), 2, generator_steps=40)
CPU = torch.device("cpu")


def halves(rows):
    """Images that are bright on one side, with some noise; as many of each side."""
    rng = np.random.default_rng(0)
    labels = np.arange(rows) % 2
    bright = np.arange(6)[None, None, :] // 3 == labels[:, None, None]
    pixels = np.clip(12 * bright + rng.integers(0, 5, (rows, 6, 6)), 0, 16).reshape(rows, -1)
    frame = pd.DataFrame(pixels, columns=list(IMAGE.columns))
    return frame.assign(y=np.array(["left", "right"])[labels])


@pytest.fixture(scope="module")
def veil():
    curator = Curator(SCHEMA)
    return curator.release(halves(1500), 5.0, 1e-6, training=SHORT, progress=False)


def test_the_generator_learns_the_classes(veil):
    points, labels = veil.population().sample(400, np.random.default_rng(0))
    pictures = points.reshape(-1, 6, 6)
    left = pictures[:, :, :3].mean(axis=(1, 2)) - pictures[:, :, 3:].mean(axis=(1, 2))
    assert ((left > 0) == (labels == 0)).mean() > 0.9
    assert (points * 16 == np.round(points * 16)).all()
    frame = Encoding(SCHEMA).decode(points)
    Encoding(SCHEMA).encode(frame)
    real = torch.as_tensor(Encoding(SCHEMA).encode(halves(200)), dtype=torch.float32)
    assert (veil.surrogate(real).argmax(dim=1) == torch.arange(200) % 2).float().mean() > 0.9


def test_a_veil_carries_its_generator(veil, tmp_path):
    veil.save(tmp_path / "x.veil")
    again = Veil.load(tmp_path / "x.veil")
    assert again.digest == veil.digest
    drawn = [each.population().sample(30, np.random.default_rng(1))[0] for each in (veil, again)]
    assert np.array_equal(*drawn)
    result = Explainer(again, guidance="surrogate").explain(
        halves(4), method="iterations", iterations=20, progress=False
    )
    Encoding(SCHEMA).encode(result.rows)


def test_training_is_the_same_every_time_and_counts_its_epochs(veil):
    population = population_of(SCHEMA, veil.record)
    seen = []
    made = fit_networks(
        population, SCHEMA, seed=0, device=CPU, training=SHORT, tick=lambda n, _="": seen.append(n)
    )
    assert seen == list(range(1, 1 + epochs_of(population, SHORT)))
    for name, weights in made.generator.state_dict().items():
        assert torch.equal(weights, veil.generator.state_dict()[name])


def test_without_a_generator_there_is_nothing_to_draw(veil):
    population = population_of(SCHEMA, veil.record)
    assert isinstance(population, FeaturePopulation)
    with pytest.raises(RequestError, match="no generator yet"):
        population.sample(3, np.random.default_rng(0))
    trained = train_generator(population, 2, seed=0, device=CPU)
    points, _ = population.with_generator(trained).sample(0, np.random.default_rng(0))
    assert points.shape == (0, 36)


@pytest.mark.parametrize("shape", [(1, 1, 1), (5, 9, 3), (8, 8, 1), (7, 4, 2)])
def test_images_of_any_shape(shape):
    height, breadth, channels = shape
    image = Pixels(name="p", height=height, breadth=breadth, channels=channels)
    generator = Generator(image, 3, GeneratorSize(latent=2))
    images = generator(torch.randn(4, 2), torch.tensor([0, 1, 2, 0]))
    assert images.shape == (4, image.width)
    assert ((images >= 0) & (images <= 1)).all()


def test_a_patch_lies_around_its_cell():
    """One cell at work alone: its patch of 8 × 8 pixels, two beyond the cell on every side."""
    image = Pixels(name="p", height=12, breadth=16, channels=2)
    generator = Generator(image, 1, GeneratorSize(latent=1, hidden=3, maps=2)).requires_grad_(False)
    for weights in (generator.second.weight, generator.second.bias):
        weights.zero_()
    generator.second.bias.reshape(3, 4, 2)[1, 2, 0] = 1.0  # cell (1, 2), first patch
    generator.patches.weight.fill_(3.0)
    pixels = generator(torch.zeros(1, 1), torch.tensor([0])).reshape(12, 16, 2)
    bright = torch.zeros(12, 16, 2)
    bright[2:10, 6:14] = 1.0
    assert torch.allclose(pixels, torch.sigmoid(3 * bright - 1))


def test_what_normalises_in_training_is_in_the_weights_afterwards():
    torch.manual_seed(0)
    learning = _Normalised(Generator(IMAGE, 3, GeneratorSize(latent=4, hidden=20, maps=5)))
    classes = torch.arange(60) % 3
    for norm in (learning.first, learning.second):
        torch.nn.init.normal_(norm.weight)
        torch.nn.init.normal_(norm.bias)
    for _ in range(30):
        learning(torch.randn(60, 4), classes)
    latent = torch.randn(60, 4)
    expected = learning.eval()(latent, classes).detach()
    plain = learning.generator(latent, classes).detach()
    settled = learning.settled()
    assert torch.allclose(settled(latent, classes), expected, atol=1e-5)
    assert not torch.allclose(plain, expected, atol=1e-2)
    assert all("norm" not in name and "running" not in name for name in settled.state_dict())


def test_disturbed_images_are_the_same_images_moved_a_little():
    image = Pixels(name="p", height=20, breadth=16, channels=2)
    points = torch.zeros(400, 20, 16, 2)
    points[:, 8:12, 6:10, 1] = 1.0  # a square in the middle of the second channel
    seen = disturbed(points.flatten(1), image, torch.Generator().manual_seed(0))
    again = disturbed(points.flatten(1), image, torch.Generator().manual_seed(0))
    assert torch.equal(seen, again)
    assert seen.shape == (400, 640)
    pictures = seen.reshape(400, 20, 16, 2)
    assert pictures[..., 0].mean().abs() < 0.01  # channels stay apart: grain only
    means = pictures[..., 1].mean(dim=0)
    assert means[8:12, 6:10].mean() > 0.5
    assert means[:3].max() < 0.05
    assert (seen.std(dim=0) > 0.01).all()
    assert not torch.allclose(pictures[0], pictures[1], atol=0.1)


def test_what_has_no_generator_is_written_as_before(veil):
    plain = Curator(SCHEMA).release(halves(60), 1.0, training=SHORT, progress=False)
    assert plain.generator is None
    members = members_of(io.BytesIO(plain.to_bytes()))
    assert "generator" not in json.loads(members["manifest.json"])
    assert "features" not in json.loads(members["record.json"])
    mine = members_of(io.BytesIO(veil.to_bytes()))
    assert "generator" in json.loads(mine["manifest.json"])
    assert json.loads(to_members(veil.record)["record.json"])["features"] == veil.record.features


def test_a_generator_that_does_not_belong_is_refused(veil):
    for surrogate in (veil.surrogate, None):
        with pytest.raises(VeilError, match="need a generator"):
            Veil.from_bytes(replace(veil, generator=None, surrogate=surrogate).to_bytes())
    plain = Curator(SCHEMA).release(halves(60), 1.0, training=SHORT, progress=False)
    foreign = replace(plain, generator=veil.generator, surrogate=veil.surrogate)
    with pytest.raises(VeilError, match="generator"):
        Veil.from_bytes(foreign.to_bytes())


@pytest.mark.parametrize(
    "content", [None, 3, {}, {"latent": 6}, {"latent": 0}, {"latent": 1 << 13}, {"latent": True}]
)
def test_sizes_of_a_generator_are_checked(content):
    usual = asdict(GeneratorSize())
    assert GeneratorSize.from_manifest(usual) == GeneratorSize()
    if isinstance(content, dict) and content and content != {"latent": 6}:
        content = usual | content
    with pytest.raises(VeilError, match="usable sizes"):
        GeneratorSize.from_manifest(content)
