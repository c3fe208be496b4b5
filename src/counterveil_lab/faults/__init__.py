"""Planted faults: known mistakes in copies of the product, each of which the audit must catch."""

from counterveil_lab.faults.fault import SOUND, Fault
from counterveil_lab.faults.planted import FAULTS
from counterveil_lab.faults.run import FaultError, failures, plant, run_all

__all__ = ["FAULTS", "SOUND", "Fault", "FaultError", "failures", "plant", "run_all"]
