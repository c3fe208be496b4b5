"""Published archives: small ones of the same layout are read, others are refused."""

import hashlib
import io
import tarfile

import numpy as np
import pandas as pd
import pytest

from counterveil.encoding import Encoding
from counterveil_lab.datasets import VARIABLE, DatasetMissing, load


def pack(path, files):
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))


def bits(rows, columns, *, classes):
    """Lines as they were published: all 100 classes, if asked, and then bits."""
    table = np.random.default_rng(0).integers(0, 2, (rows, columns))
    heads = [[row % 100 + 1] if classes else [] for row in range(rows)]
    return [",".join(map(str, [*head, *line])) for head, line in zip(heads, table, strict=True)]


def test_purchase_is_read_from_its_archive(tmp_path):
    lines = bits(300, 600, classes=True)
    path = tmp_path / "dataset_purchase.tgz"
    pack(path, {"dataset_purchase": "\n".join(lines)})
    dataset = load("purchase", 1, tmp_path)
    assert (len(dataset.train), len(dataset.test), dataset.schema.width) == (240, 60, 600)
    assert dataset.schema.family == "binary"
    assert hashlib.sha256(path.read_bytes()).hexdigest() in dataset.note
    assert dataset.paper_accuracy == 0.713
    rows = pd.concat([dataset.train, dataset.test])
    ours = {",".join(map(str, [row["class"] + 1, *row[:-1]])) for _, row in rows.iterrows()}
    assert ours == set(lines)


def test_texas_is_read_from_its_archive(tmp_path):
    pack(
        tmp_path / "dataset_texas.tgz",
        {
            "./texas/100/feats": "\n".join(bits(200, 40, classes=False)) + "\n",
            "./texas/100/labels": "\n".join(str(row % 100 + 1) for row in range(200)) + "\n",
            "./texas/100/feats_desc": "what the bits mean",
        },
    )
    dataset = load("texas", 0, tmp_path)
    assert (len(dataset.train), len(dataset.test), dataset.schema.width) == (160, 40, 40)
    assert set(pd.concat([dataset.train, dataset.test])["class"]) == set(range(100))
    check = Encoding(dataset.schema).encode(dataset.test)
    assert set(np.unique(check)) == {0, 1}


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"other": "1,0"}, "has no file dataset_purchase"),
        ({"dataset_purchase": "1,0,1"}, "3 columns, not 601"),
        ({"dataset_purchase": "1" + ",2" * 600}, "rows of 0 and 1"),
        ({"dataset_purchase": "101" + ",1" * 600}, "classes from 1 to 100"),
        ({"dataset_purchase": "first" + ",1" * 600}, "could not|invalid|Unable|docs/datasets"),
    ],
)
def test_an_archive_of_another_form_is_refused(files, words, tmp_path):
    pack(tmp_path / "dataset_purchase.tgz", files)
    with pytest.raises(DatasetMissing, match=words):
        load("purchase", folder=tmp_path)


@pytest.mark.parametrize("name", ["purchase", "texas"])
def test_an_absent_or_damaged_archive_says_where_it_comes_from(name, tmp_path, monkeypatch):
    with pytest.raises(DatasetMissing, match=r"docs/datasets\.md says where"):
        load(name, folder=tmp_path)
    (tmp_path / f"dataset_{name}.tgz").write_bytes(b"no archive")
    with pytest.raises(DatasetMissing, match="no archive that can be read"):
        load(name, folder=tmp_path)
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(DatasetMissing, match="privacytrustlab/datasets"):
        load(name)
