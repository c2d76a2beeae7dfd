"""A stack file without its secrets, so that it can be previewed by somebody who cannot decrypt them."""

from __future__ import annotations

import yaml

PLACEHOLDER = '"placeholder for an encrypted value"'
SECRETS_KEYS = frozenset({"secretsprovider", "encryptionsalt", "encryptedkey"})


def without_secrets(text: str) -> str:
    """The text of a `Pulumi.<stack>.yaml` without its secrets provider, each `secure:` value replaced.

    Works on the text and not on parsed values: the engine reads YAML 1.2 and this library 1.1, where a plain
    `on` is a boolean. Raises yaml.YAMLError for what is no YAML.
    """
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    spans: list[tuple[int, int, str]] = []
    if isinstance(root, yaml.MappingNode):
        for key, value in root.value:
            if key.value in SECRETS_KEYS:
                spans.append((key.start_mark.index, value.end_mark.index, ""))
            else:
                _find_secure(value, spans)
    for start, end, replacement in sorted(spans, reverse=True):
        text = text[:start] + replacement + text[end:]
    return text


def _find_secure(node: yaml.Node, spans: list[tuple[int, int, str]]) -> None:
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _find_secure(item, spans)
    elif isinstance(node, yaml.MappingNode):
        if [key.value for key, _ in node.value] == ["secure"]:
            # A block mapping's own end mark lies behind the blanks and comments that follow it.
            end = node.end_mark if node.flow_style else node.value[0][1].end_mark
            spans.append((node.start_mark.index, end.index, PLACEHOLDER))
            return
        for _, value in node.value:
            _find_secure(value, spans)
