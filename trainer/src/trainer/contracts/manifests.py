"""Manifests: the object that makes a dataset version or a checkpoint exist. Written last, verified first."""

from __future__ import annotations

from pydantic import Field

from .base import Document

# What a folder is joined with: no name leads out of it, whoever wrote the manifest.
_PART = r"\.?[A-Za-z0-9_-][A-Za-z0-9._-]*"
FILE_NAME = rf"^{_PART}$"
PATH_BELOW = rf"^{_PART}(/{_PART})*$"


class Shard(Document):
    name: str = Field(pattern=FILE_NAME)  # object name beside the manifest
    size_bytes: int = Field(ge=0)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    samples: int = Field(gt=0)
    split: str = "train"


class DatasetFacts(Document):
    """What cannot be read from the shards themselves; ``dataset.json`` in a folder that is to be published."""

    classes: int | None = None  # images: labels are 0 .. classes - 1
    class_names: list[str] = Field(default_factory=list)  # in label order, where they have names
    vocabulary: int | None = Field(default=None, gt=0)  # tokens: they are 0 .. vocabulary - 1
    sequence_length: int | None = Field(default=None, gt=0)  # tokens: what a model sees of one sample
    separator: int | None = Field(default=None, ge=0)  # the token after each document; none: not marked


class DatasetManifest(DatasetFacts):
    """``datasets/<name>/<version>/manifest.json``."""

    schema_version: int = 1
    name: str
    version: str
    format: str  # see `trainer.data.manifest`
    sample_shape: list[int] = Field(default_factory=list)  # images: [c, h, w]; tokens: [sequence_length + 1]
    shards: list[Shard] = Field(min_length=1)


class CheckpointFile(Document):
    name: str = Field(pattern=PATH_BELOW)
    size_bytes: int = Field(ge=0)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class CheckpointManifest(Document):
    """``runs/<run>/checkpoints/step-<n>/manifest.json``: the checkpoint is complete if and only if this exists."""

    schema_version: int = 1
    run: str
    step: int = Field(ge=0)
    generation: int = Field(ge=0)  # fencing: the generation whose leader wrote it
    samples_consumed: int = Field(ge=0)  # global offset over all epochs; resume is defined by it
    epoch: float
    world_size: int = Field(gt=0)
    config_sha256: str
    trainer_version: str
    files: list[CheckpointFile] = Field(min_length=1)
    created_at: str


class LatestPointer(Document):
    """``runs/<run>/latest`` (and ``best``): moved only by If-Match on the value read at the start of the term."""

    step: int
    generation: int
    manifest_sha256: str
    eval_loss: float | None = None
