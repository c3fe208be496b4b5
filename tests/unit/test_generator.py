"""The generator of images: what it learns, what it draws, and how it travels in a veil."""

from dataclasses import asdict, replace

import numpy as np
import pandas as pd
import pytest
import torch

from counterveil.build import Training
from counterveil.curator import Curator
from counterveil.encoding import Encoding
from counterveil.errors import RequestError, VeilError
from counterveil.population import FeaturePopulation, population_of
from counterveil.population.generator import (
    Generator,
    GeneratorSize,
    train_generator,
)
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
