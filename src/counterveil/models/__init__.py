"""Target models: adapters through which the search asks any model for class probabilities."""

from counterveil.models.adapters import CallableModel, EstimatorModel, adapt
from counterveil.models.base import TargetModel
from counterveil.models.export import save_exported, save_private_model
from counterveil.models.load import ModelFile, load_model
from counterveil.models.onnx import OnnxModel
from counterveil.models.rows import Rows
from counterveil.models.torch_model import TorchModel

__all__ = [
    "CallableModel",
    "EstimatorModel",
    "ModelFile",
    "OnnxModel",
    "Rows",
    "TargetModel",
    "TorchModel",
    "adapt",
    "load_model",
    "save_exported",
    "save_private_model",
]
