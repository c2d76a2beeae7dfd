"""Libraries that only some commands need, and that no node's release brings."""

from __future__ import annotations

from importlib.util import find_spec

from .errors import ConfigurationError


def need(*modules: str) -> None:
    """Raises ConfigurationError where one is not installed; nothing is imported."""
    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        raise ConfigurationError(
            f"this command needs {' and '.join(missing)}; install what is missing: "
            f"pip install {' '.join(missing)}"
        )
