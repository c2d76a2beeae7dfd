"""Reading the node document."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from ..contracts.node_document import SCHEMA_VERSION, NodeDocument
from ..errors import ConfigurationError


def read_document(path: Path) -> NodeDocument:
    """Raises ConfigurationError with the path of the first fault."""
    try:
        document = NodeDocument.from_json(path.read_bytes())
    except OSError as error:
        raise ConfigurationError(f"node document {path}: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ConfigurationError(f"node document {path}: {where}: {first['msg']}") from error
    if document.schema_version != SCHEMA_VERSION:
        raise ConfigurationError(
            f"node document {path} has schema version {document.schema_version}, this release reads {SCHEMA_VERSION}"
        )
    return document
