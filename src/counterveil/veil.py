"""The Veil: what the curator releases, with its networks. Its file is that of `veil_file`."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import get_args

import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from counterveil import veil_file
from counterveil.errors import RequestError, VeilError
from counterveil.files import write_whole
from counterveil.hints import named
from counterveil.networks import AsImages, Autoencoder, classifier, convolutional, sizes_of
from counterveil.pages import notebook_table
from counterveil.population import Generator, Population, population_of
from counterveil.population.generator import GeneratorSize
from counterveil.population.whole_scorecard import Surrogate, WholeScorecard
from counterveil.privacy import Statement
from counterveil.privacy.record import NoisyRecord, to_members
from counterveil.private_model import ClassWeights, PrivateModel
from counterveil.schema import Schema
from counterveil.signature import PublicKey, Signature, Signer, SigningKey, signer_line, trusted_key
from counterveil.veil_file import MANIFEST, SIGNATURE, VeilFile, pack, refusing, sha256


@dataclass(frozen=True, eq=False)
class Veil:
    """Schema, statement, noisy record and what was trained on it. Safe to ship; holds no row."""

    schema: Schema
    autoencoder: Autoencoder
    prototypes: Tensor  # (classes, latent)
    statement: Statement
    surrogate: Surrogate | None = None
    record: NoisyRecord | None = None  # of mechanism `functional`
    signature: Signature | None = None
    trusted: PublicKey | None = None  # the key that `check_signer` has found
    generator: Generator | None = None  # of images measured by random features

    def __repr__(self) -> str:
        signed = "unsigned" if self.signer is None else str(self.signer).split(";")[0]
        return f"Veil({self.schema.name!r}, {self.statement.headline}, {signed})"

    def _repr_html_(self) -> str:
        """What a notebook shows: what the veil is of, what it promises, and who signed it."""
        schema, label = self.schema, self.schema.label
        classes = named([label.shown_value(each) for each in label.classes])
        return notebook_table(
            f"Veil of {schema.name}",
            [
                ("promise", self.statement.headline),
                ("meaning", self.statement.level.meaning),
                ("label", f"{label.shown_name}: {classes}"),
                ("features", f"{len(schema.columns)} columns, {schema.width} encoded numbers"),
                ("private model", "none" if self.surrogate is None else "yes: .model()"),
                ("signature", signer_line(self.signer)),
                ("digest", self.digest),
                ("more", ".statement, .schema"),
            ],
        )

    @cached_property
    def digest(self) -> str:
        """SHA-256 over everything but the signature: the name under which it can be cited."""
        return sha256(self._manifest(self._members()))

    @property
    def signer(self) -> Signer | None:
        """Who signed it, as every surface says it; None if nobody did."""
        return None if self.signature is None else self.signature.signer(self.trusted)

    def signed(self, key: SigningKey) -> Veil:
        """The same veil with a signature by `key`, in place of any other."""
        manifest = self._manifest(self._members())
        return replace(self, signature=key.sign(manifest), trusted=None)

    def check_signer(self, trusted: Sequence[PublicKey]) -> Veil:
        """The same veil, known to be signed by one of the keys; a VeilError if it is not."""
        manifest = self._manifest(self._members())
        return replace(self, trusted=trusted_key(self.signature, trusted, manifest))

    def population(self) -> Population:
        """P~, rebuilt from the noisy record at no privacy cost."""
        if self.record is None:
            raise RequestError(
                f"this veil has no noisy record: mechanism {self.statement.mechanism} makes none; "
                "release it by mechanism functional"
            )
        return population_of(self.schema, self.record, self.generator)

    def model(self, classes: ClassWeights | None = None) -> PrivateModel:
        """The private model f~: predict, predict_proba; unlimited questions at no further cost.

        `classes`: they weigh as they are among the people, "population", or the same, "even"; by
        default the first, and the second where the veil has no noisy record to tell the shares.
        """
        if classes is None:
            classes = "even" if self.record is None else "population"
        if classes not in get_args(ClassWeights):
            raise RequestError("classes must be 'even' or 'population'")
        if self.surrogate is None:
            raise RequestError(
                f"this veil has no private model: mechanism {self.statement.mechanism} makes none; "
                "release it by mechanism functional"
            )
        share = None if classes == "even" else self.population().class_share
        statement = self.statement.guided_by_surrogate()
        return PrivateModel(
            self.schema,
            self.surrogate,
            statement,
            class_share=share,
            veil=self.digest,
            population=None if self.record is None else self.population,
        )

    def to_bytes(self) -> bytes:
        """The content of its file; the same veil always gives the same bytes."""
        members = self._members()
        members = {MANIFEST: self._manifest(members), **members}
        if self.signature is not None:
            members[SIGNATURE] = self.signature.to_json()
        return pack(members)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file, if it is one that can be loaded."""
        content = self.to_bytes()
        Veil.from_bytes(content, str(path))
        write_whole(path, content)

    def _members(self) -> dict[str, bytes]:
        networks = self.autoencoder, self.surrogate, self.generator
        tensors = _named(*networks) | {"prototypes": self.prototypes}
        weights = {name: tensor.contiguous() for name, tensor in tensors.items()}
        return {
            "schema.json": self.schema.to_json().encode(),
            "statement.json": self.statement.model_dump_json(indent=2).encode(),
            "weights.safetensors": save_tensors(weights),
            **to_members(self.record),
        }

    def _manifest(self, members: dict[str, bytes]) -> bytes:
        further = {} if self.generator is None else {"generator": asdict(self.generator.size)}
        content = {
            "format": veil_file.FORMAT,
            "version": veil_file.VERSION,
            "hidden": list(self.autoencoder.hidden),
            "surrogate": None if self.surrogate is None else _shape_of(self.surrogate),
            **further,
            "sha256": {name: sha256(content) for name, content in members.items()},
        }
        return json.dumps(content, indent=2).encode()

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Veil:
        """Read a file and check all of it."""
        return cls.from_bytes(VeilFile.content(path), str(path))

    @classmethod
    def from_bytes(cls, content: bytes, name: str = "veil") -> Veil:
        """The veil in the content of a file, all of it checked. `name` stands in the messages."""
        with refusing(name):
            file = VeilFile.read(content)
            if file.record is not None:
                population_of(file.schema, file.record)  # refuses a record that does not fit
            autoencoder, prototypes, surrogate, generator = _rebuild(file)
            of_features = file.record is not None and file.record.features > 0
            if (generator is not None) != of_features:
                raise VeilError("random features of images need a generator, and nothing else does")
            given = file.statement, surrogate, file.record, file.signature
            veil = cls(file.schema, autoencoder, prototypes, *given, generator=generator)
            if veil.to_bytes() != content:
                raise VeilError("not written as counterveil writes veils; ask for it again")
            return veil


def _named(
    autoencoder: Autoencoder, surrogate: Surrogate | None, generator: Generator | None
) -> dict[str, Tensor]:
    """The weights under the names that they have in a file."""
    named: dict[str, Tensor] = autoencoder.state_dict()
    for name, network in (("surrogate", surrogate), ("generator", generator)):
        further = {} if network is None else network.state_dict()
        named |= {f"{name}.{key}": part for key, part in further.items()}
    return named


def _shape_of(surrogate: Surrogate) -> dict[str, list[int]]:
    """The kind and the sizes of a surrogate, as a manifest has them."""
    if isinstance(surrogate, WholeScorecard):
        return {"scorecard": [len(surrogate.columns)]}
    kind = "convolutional" if isinstance(surrogate[0], AsImages) else "dense"
    return {kind: list(sizes_of(surrogate))}


def _surrogate_of(described: dict[str, tuple[int, ...]], schema: Schema) -> Surrogate | None:
    """An empty surrogate of the kind and the sizes of a manifest; None if it has none."""
    classes = len(schema.label.classes)
    match [*described.items()]:
        case []:
            return None
        case [("scorecard", (ways,))] if schema.family == "mixed":
            return WholeScorecard(ways, classes)
        case [("dense", hidden)]:
            return classifier(schema.width, hidden, classes)
        case [("convolutional", (_, _, _) as hidden)] if schema.images:
            return convolutional(schema.images[0], hidden, classes)
    raise VeilError("its manifest gives no usable surrogate")


def _rebuild(file: VeilFile) -> tuple[Autoencoder, Tensor, Surrogate | None, Generator | None]:
    """Autoencoder, prototypes, surrogate and generator from the weights of a file."""
    schema, manifest = file.schema, file.manifest
    width, classes = schema.width, len(schema.label.classes)
    tensors, described = load_tensors(file.members["weights.safetensors"]), manifest["surrogate"]
    with torch.device("meta"):  # shapes first, memory only for what really is in the file
        autoencoder = Autoencoder(width, manifest["hidden"])
        surrogate, generator = _surrogate_of(described, schema), None
        if manifest["generator"] is not None:  # only images have one, and a surrogate beside it
            if "convolutional" not in described:
                raise VeilError("its manifest gives no usable layer sizes")
            size = GeneratorSize.from_manifest(manifest["generator"])
            generator = Generator(schema.images[0], classes, size)
    built = _named(autoencoder, surrogate, generator)
    expected = {name: (tensor.shape, tensor.dtype) for name, tensor in built.items()}
    expected["prototypes"] = torch.Size((classes, autoencoder.latent)), torch.float32
    if {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()} != expected:
        raise VeilError("its weights do not fit its schema")
    if not all(bool(tensor.isfinite().all()) for tensor in tensors.values()):
        raise VeilError("its weights are not finite numbers")
    prototypes = tensors.pop("prototypes")
    for prefix, network in (("surrogate", surrogate), ("generator", generator)):
        if network is not None:
            mine = {name: tensors.pop(f"{prefix}.{name}") for name in network.state_dict()}
            network.load_state_dict(mine, assign=True)
            network.requires_grad_(False).eval()
    if isinstance(surrogate, WholeScorecard):
        surrogate.check(width)
    autoencoder.load_state_dict(tensors, assign=True)
    return autoencoder.requires_grad_(False).eval(), prototypes, surrogate, generator
