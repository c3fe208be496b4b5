"""Every planted fault is caught by the audit or a test, and the sound code by none of these."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from faults import FAULTS, SOUND, Fault, FaultError, failures, plant, run
from filelock import FileLock

import counterveil
from counterveil.curator import dpsgd
from counterveil_lab.results import stored_rows

needs_opacus = pytest.mark.skipif(
    not dpsgd.installed(), reason="opacus is absent: pip install 'counterveil[dpsgd]'"
)


def _is_first_of_its_kind(number):
    kinds = [(fault.mechanism, fault.delta) for fault in FAULTS]
    return kinds.index(kinds[number]) == number


# A fortieth of them at every change, with each mechanism and δ; all others every night.
SOME = [
    fault for place, fault in enumerate(FAULTS) if not place % 40 or _is_first_of_its_kind(place)
]
OTHERS = [fault for fault in FAULTS if fault not in SOME]


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    return _stored(tmp_path_factory, "some", SOME)


@pytest.fixture(scope="module")
def stored_others(tmp_path_factory):
    return _stored(tmp_path_factory, "others", OTHERS)


def _stored(tmp_path_factory, name, faults):
    """The rows of `counterveil-lab faults`, in a process of its own, for it forks.

    Run once for all workers of the tests: whoever comes second waits and reads.
    """
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / f"faults-{name}"
    with FileLock(f"{folder}.lock"):
        if not (folder / "audit_faults.parquet").exists():
            _run(folder, [fault.name for fault in faults])
    rows = stored_rows(folder, "audit_faults")
    return {row["fault"]: row for row in rows if row["fault"] != SOUND} | {
        (SOUND, row["mechanism"], row["delta"]): row for row in rows if row["fault"] == SOUND
    }


def _run(folder, names):
    folder.mkdir(exist_ok=True)
    source = str(Path(counterveil.__file__).parent.parent)
    paths = os.pathsep.join([source, str(Path(__file__).parents[2] / "tools")])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "faults", "--out", str(folder)]
    command += ["--", *names]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, check=False, timeout=3500
    )
    assert done.returncode in (0, 1), done.stderr
    rows = stored_rows(folder, "audit_faults")
    assert done.returncode == bool(failures(rows))


@pytest.mark.long
@needs_opacus
@pytest.mark.parametrize("fault", SOME, ids=lambda fault: fault.name)
def test_a_planted_fault_is_caught(stored, fault):
    row = stored[fault.name]
    assert row["caught"], row
    assert row["caught_by"]


@needs_opacus
@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("fault", OTHERS, ids=lambda fault: fault.name)
def test_every_other_fault_is_caught(stored_others, fault):
    row = stored_others[fault.name]
    assert row["caught"], row
    assert row["caught_by"]


@pytest.mark.long
@needs_opacus
def test_the_sound_code_raises_no_alarm(stored):
    sound = [row for key, row in stored.items() if key[0] == SOUND]
    assert {(row["mechanism"], row["delta"]) for row in sound} == {
        (fault.mechanism, fault.delta) for fault in FAULTS
    }
    assert not any(row["caught"] for row in sound), sound


def test_there_are_faults_of_every_kind_and_what_counts_as_caught(tmp_path):
    assert len(FAULTS) >= 150
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
    assert {fault.mechanism for fault in FAULTS} == {"functional", "dpsgd", "score"}
    fault = Fault("old", "nothing", (("curator/noise.py", "no such text", ""),), ())
    with pytest.raises(FaultError, match="its text must be in"):
        plant(fault, tmp_path)
    caught, missed = {"fault": "x", "caught": True}, {"fault": "x", "caught": False}
    alarm, quiet = {"fault": SOUND, "caught": True}, {"fault": SOUND, "caught": False}
    rows = [row | {"finding": ""} for row in (caught, missed, alarm, quiet)]
    assert failures(rows) == ["x: not caught", f"{SOUND}: alarm"]
    row = run._row(FAULTS[0], [("", "ValueError at x.py:1", False)])
    assert not row["caught"]
    sound = Fault(SOUND, "nothing", (), ())
    assert run._row(sound, [("", "ValueError at x.py:1", False)])["caught"]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_fits_the_code(fault, tmp_path):
    plant(fault, tmp_path)
    for file, _, _ in fault.patches:
        compile((tmp_path / "counterveil" / file).read_text("utf-8"), file, "exec")
