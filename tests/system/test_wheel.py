"""The wheel: everything that the package needs is inside, and nothing else."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("counterveil", "counterveil_lab")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder, copy = tmp_path_factory.mktemp("wheel"), tmp_path_factory.mktemp("copy")
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, copy)
    for package in PACKAGES:  # building leaves files behind, and takes up those of last time
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "src" / package, copy / "src" / package, ignore=ignored)
    options = ["--no-deps", "--no-build-isolation", "--quiet", "--wheel-dir", str(folder)]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(copy)], check=True)
    (made,) = folder.glob("*.whl")
    return made


def test_every_file_of_the_packages_is_in_the_wheel(wheel):
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    source = ROOT / "src"
    there = {
        str(path.relative_to(source))
        for package in PACKAGES
        for path in (source / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert inside == there


@pytest.mark.long
def test_it_runs_from_the_wheel_alone(wheel, tmp_path):
    """Unpacked elsewhere; the packages that it needs are those of this environment."""
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'site')!r}); import counterveil; "
        "print(counterveil.__file__); from counterveil.demo.adult import adult_split; "
        "print(len(adult_split().train)); from importlib.resources import files; "
        "print(files('counterveil.service').joinpath('page/index.html').is_file())"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    ).stdout.split()
    assert told[0].startswith(str(tmp_path))
    assert int(told[1]) > 30_000
    assert told[2] == "True"
