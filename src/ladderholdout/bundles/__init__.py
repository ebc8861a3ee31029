"""Bundles that run a challenge on another platform, and ask a server for its scores."""

from __future__ import annotations

from ladderholdout.bundles.writing import PLATFORMS, Challenge, write_bundle

__all__ = ["PLATFORMS", "Challenge", "write_bundle"]
