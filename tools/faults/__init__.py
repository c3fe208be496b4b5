"""Planted faults: known mistakes in copies of the product, each of which the audit must catch."""

from faults.fault import SOUND, Fault
from faults.planted import FAULTS
from faults.run import FaultError, failures, plant, run_all

__all__ = ["FAULTS", "SOUND", "Fault", "FaultError", "failures", "plant", "run_all"]
