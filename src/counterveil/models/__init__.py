"""Adapters to the target model f: whatever it is, the search sees class probabilities."""

from counterveil.models.adapters import CallableModel, EstimatorModel, TorchModel, adapt
from counterveil.models.base import TargetModel
from counterveil.models.exported import save_exported
from counterveil.models.files import load_model
from counterveil.models.onnx import OnnxModel
from counterveil.models.student import distil

__all__ = [
    "CallableModel",
    "EstimatorModel",
    "OnnxModel",
    "TargetModel",
    "TorchModel",
    "adapt",
    "distil",
    "load_model",
    "save_exported",
]
