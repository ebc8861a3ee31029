"""Thin adapters: one module for each library, the only one that imports it."""
