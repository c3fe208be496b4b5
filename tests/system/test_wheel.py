"""The wheel: all that the package needs is inside, and nothing else. `make wheel` runs it."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("counterveil", "counterveil_lab")


def test_every_file_of_the_packages_is_in_the_wheel(tmp_path):
    folder, copy = tmp_path / "wheel", tmp_path / "copy"
    copy.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, copy)
    for package in PACKAGES:  # building leaves files behind, and takes up those of last time
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "src" / package, copy / "src" / package, ignore=ignored)
    options = ["--no-deps", "--no-build-isolation", "--quiet", "--wheel-dir", str(folder)]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(copy)], check=True)
    (wheel,) = folder.glob("*.whl")
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    source = ROOT / "src"
    there = {
        str(path.relative_to(source))
        for package in PACKAGES
        for path in (source / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert inside == there
