"""Makes the README of a build: its links and pictures lead to the repository from anywhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

# What leads to a path of this repository, in Markdown: pictures, and with them gone, links.
_PICTURE = re.compile(r"(!\[[^]]*\])\((?![a-z]+:|#)([^)]+)\)")
_LINK = re.compile(r"\]\((?![a-z]+:|#)([^)]+)\)")


class PublishedReadme(MetadataHookInterface):
    """States the README as package pages show it; pyproject.toml has the repository's address."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the text of the README."""
        readme = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        text = absolute(readme, metadata["urls"]["Source"], f"v{metadata['version']}")
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def absolute(readme: str, source: str, tag: str) -> str:
    """Replace paths by addresses of the files as they are in one version."""
    text = _PICTURE.sub(rf"\1({source}/raw/{tag}/\2)", readme)
    return _LINK.sub(rf"]({source}/blob/{tag}/\1)", text)
