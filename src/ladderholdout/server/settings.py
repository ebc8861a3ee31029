"""What a server is started with: flags first, then the environment, then a TOML file."""

from __future__ import annotations

import importlib.util
import json
import os
import tomllib
from collections import ChainMap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from ladderholdout import errors, process
from ladderholdout.ledger.place import is_memory, is_server, resolve_url
from ladderholdout.metrics import Metric

PREFIX = "LADDERHOLDOUT_SERVE_"
"""Begins the names of environment variables, such as ``LADDERHOLDOUT_SERVE_PORT``.

Commas separate the parts of a list.
"""
STARTED_WITH = "LADDERHOLDOUT_SERVE"
"""The environment variable in which worker processes find the settings, as JSON."""

_ALL = "*"


def _split(value: Any) -> Any:
    """Return the parts of a text of an environment variable; return a list as it is."""
    if not isinstance(value, str):
        return value
    return [part.strip() for part in value.split(",") if part.strip()]


_Names = Annotated[tuple[str, ...], BeforeValidator(_split), Field(description="a list of names")]


class ServerSettings(BaseModel):
    """Settings of a server, validated when they are made.

    Attributes
    ----------
    ledger : str or None
        A path or a URL; by default ``LADDERHOLDOUT_LEDGER``, else the user's ledger.
    host : str
    port : int
    workers : int
        Processes.
    tls_cert, tls_key : str or None
        Files in PEM.
    max_body : int
        Megabytes that a request may have.
    time_grid : int
        Milliseconds: each answer is sent at a multiple of them after its request.
    max_refusals : int
        Requests of an account that may be refused in a minute before the next is not read; one of
        some megabytes counts as so many more.
    share_rows, allow_estimates, allow_reveals, allow_comparisons : tuple of str
        Names of the holdouts whose features are served, whose corrected score, score on a ladder
        that shows improvements alone, or comparisons may be requested; ``*`` for all.

    metrics : tuple of str
        Metrics of the owner's own, each FILE.py:NAME: the file is run, and has a `Metric` of that
        name.

    Examples
    --------
    >>> settings = ServerSettings(ledger="ledger.db", share_rows=("coins",))
    >>> settings.port, settings.allows("share_rows", "coins"), settings.allows("share_rows", "dice")
    (8765, True, False)
    >>> ServerSettings.from_json(settings.to_json()).share_rows
    ('coins',)
    """

    # An error states the description of a setting as what is allowed.
    model_config = ConfigDict(frozen=True, extra="forbid")

    ledger: str | None = Field(None, description="a text")
    host: str = Field("127.0.0.1", description="a text")
    port: int = Field(8765, ge=0, le=65535, description="a number from 0 to 65535")
    workers: int = Field(1, ge=1, description="at least 1")
    tls_cert: str | None = Field(None, description="a text")
    tls_key: str | None = Field(None, description="a text")
    max_body: int = Field(64, ge=1, description="at least 1 megabyte")
    time_grid: int = Field(25, ge=1, le=10_000, description="from 1 to 10000 milliseconds")
    max_refusals: int = Field(100, ge=1, description="at least 1 a minute")
    share_rows: _Names = ()
    allow_estimates: _Names = ()
    allow_reveals: _Names = ()
    allow_comparisons: _Names = ()
    metrics: _Names = ()

    def __init__(self, ledger: str | None = None, **stated: Any) -> None:
        try:
            super().__init__(ledger=ledger, **stated)
        except ValidationError as fault:
            raise _refused(fault) from None
        if is_memory(self.url):
            raise errors.InvalidArgument("ledger", "a file or a URL", "in memory")
        if self.workers > 1 and not process.FILES_ARE_SHARED and not is_server(self.url):
            raise errors.InvalidArgument("workers", "1 on Windows with a file", self.workers)
        if (self.tls_cert is None) != (self.tls_key is None):
            raise errors.InvalidArgument("tls-cert", "stated together with tls-key", "one without")
        for option, place in (("tls-cert", self.tls_cert), ("tls-key", self.tls_key)):
            if place is not None and not Path(place).is_file():
                raise errors.InvalidArgument(option, "a file", place)

    @property
    def url(self) -> str:
        """The URL of the ledger."""
        return resolve_url(self.ledger)

    def allows(self, what: str, holdout: str) -> bool:
        """Return whether a holdout is in one of the lists."""
        listed = getattr(self, what)
        return _ALL in listed or holdout in listed

    def to_json(self) -> str:
        """Write the settings for another process."""
        return json.dumps(self.model_dump() | {"ledger": self.url})

    @classmethod
    def from_json(cls, text: str) -> ServerSettings:
        """Read what `to_json` wrote."""
        return cls(**json.loads(text))


def _refused(fault: ValidationError) -> errors.InvalidArgument:
    """Return the error for the first setting that is none."""
    first = fault.errors()[0]
    name, fields = str(first["loc"][0]), ServerSettings.model_fields
    if name not in fields:
        return errors.InvalidArgument("a setting", f"one of {', '.join(fields)}", repr(name))
    is_out_of_range = first["type"].startswith(("greater", "less"))
    came = first["input"] if is_out_of_range else "another value"
    return errors.InvalidArgument(name.replace("_", "-"), str(fields[name].description), came)


def settings_from(
    flags: Mapping[str, Any], environment: Mapping[str, str], file: Path | None
) -> ServerSettings:
    """Bring flags, environment and file together, the former before the latter.

    Parameters
    ----------
    flags : mapping
        By the names of `ServerSettings`; None or an empty list where nothing was stated.
    environment : mapping
        ``LADDERHOLDOUT_SERVE_HOST`` and its like.
    file : Path or None
        TOML with the same names.

    Raises
    ------
    InvalidArgument
        A name or a value is none of a server's.

    Examples
    --------
    >>> settings_from({"port": 9000}, {"LADDERHOLDOUT_LEDGER": "ledger.db"}, None).port
    9000
    """
    names = {PREFIX + name.upper(): name for name in ServerSettings.model_fields}
    sources: dict[str, dict[str, Any]] = {
        "the flags": {k: v for k, v in flags.items() if v not in (None, [], ())},
        "the environment": {names[k]: text for k, text in environment.items() if k in names},
        str(file): {} if file is None else _toml(file),
    }
    try:
        return ServerSettings(**ChainMap(*sources.values()))
    except errors.InvalidArgument as error:
        argument, allowed, came, remedy = error.args
        name = argument.replace("-", "_")
        source = next((source for source, stated in sources.items() if name in stated), None)
        if source is None:
            raise
        raise errors.InvalidArgument(argument, allowed, f"{came} in {source}", remedy) from None


def _toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        raise errors.InvalidArgument("--config", "a TOML file that can be read", file) from None


# -- metrics of the owner's own --------------------------------------------------------------

_ALLOWED = "FILE.py:NAME, of a metric in a file that nobody else may write to"


def metrics_in(places: Sequence[str]) -> Mapping[str, Metric]:
    """Run files of the owner's, and return the metrics in them by their names.

    Parameters
    ----------
    places : sequence of str
        Each ``FILE.py:NAME``.

    Raises
    ------
    InvalidArgument
        There is no such file or metric, or others may write to the file.

    Examples
    --------
    >>> metrics_in(())
    {}
    """
    found = {}
    for place in places:
        file, _, name = place.rpartition(":")
        metric = _run(Path(file)).get(name)
        if not isinstance(metric, Metric):
            raise errors.InvalidArgument("metrics", _ALLOWED, repr(place))
        found[metric.name] = metric
    return found


def _run(file: Path) -> dict[str, object]:
    """Run a file, and return its names."""
    spec = importlib.util.spec_from_file_location(f"ladderholdout_{file.stem}", file)
    try:
        if spec is None or spec.loader is None or process.is_writable_to_others(os.stat(file)):
            raise errors.InvalidArgument("metrics", _ALLOWED, str(file))
    except OSError as fault:
        raise errors.InvalidArgument("metrics", _ALLOWED, f"{file}: {fault.strerror}") from None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return vars(module)
