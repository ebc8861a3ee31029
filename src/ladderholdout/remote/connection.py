"""Requests to a server: pooled connections, time limits, retries, and where tokens come from."""

from __future__ import annotations

import atexit
import hashlib
import os
import random
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3

from ladderholdout import errors, process
from ladderholdout.arguments import as_given
from ladderholdout.errors import AccessDenied, InvalidArgument, LedgerUnreachable
from ladderholdout.remote.wire import JSON, error_of

TOKEN, TOKEN_FILE = "LADDERHOLDOUT_TOKEN", "LADDERHOLDOUT_TOKEN_FILE"

_CONNECT = 5.0
_POOL = 64
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_AGAIN = {502, 503, 504}
_LOCAL = {"127.0.0.1", "::1", "localhost"}
LARGEST_TIMEOUT = 86_400.0
# Name a file of authorities, or a folder; OpenSSL itself reads SSL_CERT_FILE and SSL_CERT_DIR.
_BUNDLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")

_pools: process.PerProcess[dict[str, urllib3.PoolManager]] = process.PerProcess(dict)
_lock = process.PerProcess(threading.Lock)


class Token:
    """Where a token comes from: an argument, the environment or a private file.

    A pickle names a place and never the token. One that was given as an argument is put into a
    private file of this process for its workers, and removed when it ends.
    """

    def __init__(self, given: str | os.PathLike[str] | None = None) -> None:
        if given is not None and not isinstance(given, str | os.PathLike):
            raise InvalidArgument("token", "a token, or the path of its file", as_given(given))
        self._secret = given.strip() if isinstance(given, str) else None
        self._file = None if given is None or isinstance(given, str) else Path(given)

    def read(self) -> str:
        """Return the token.

        Raises
        ------
        AccessDenied
            There is none here.
        """
        if self._secret:
            return self._secret
        if self._file is not None and self._file.exists():
            return _private(self._file)
        if text := os.environ.get(TOKEN):
            return text.strip()
        if place := os.environ.get(TOKEN_FILE):
            return _private(Path(place))
        raise AccessDenied(
            f"There is no token here. Give token=, or set {TOKEN}, or {TOKEN_FILE} to a private "
            "file that holds it."
        )

    def __reduce__(self) -> tuple[Any, ...]:
        if self._secret and self._secret != os.environ.get(TOKEN, "").strip():
            return Token, (_handed_on(self._secret),)
        return Token, (self._file,)

    def __repr__(self) -> str:
        return "Token()"


def _private(file: Path) -> str:
    """Read a token from a file that is nobody else's."""
    try:
        if process.is_open_to_others(file.stat()):
            raise AccessDenied(f"Others can read the token in {file}: chmod 600 {file}")
        return file.read_text("utf-8").strip()
    except (OSError, ValueError):
        raise AccessDenied(f"The file {file} holds no token that can be read.") from None


_folder: Path | None = None


def _handed_on(secret: str) -> Path:
    """Put a token into a private file, for processes that this one starts."""
    global _folder
    with _lock():
        if _folder is None or not _folder.exists():
            _folder = Path(tempfile.mkdtemp(prefix="ladderholdout-"))
            atexit.register(_remove, _folder, os.getpid())
        file = _folder / hashlib.sha256(secret.encode()).hexdigest()[:16]
        if not file.exists():
            temporary = file.with_suffix(f".{threading.get_ident()}")
            with os.fdopen(process.open_private(temporary, new=True), "w") as opened:
                opened.write(secret)
            temporary.replace(file)
    return file


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # and not in a process that was forked from it
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class Connection:
    """A server, a token for it, and for how long a request is tried again.

    Attributes
    ----------
    base : str
        ``https://host``, without a slash at its end.
    token : Token
    timeout : float
    """

    base: str
    token: Token
    timeout: float

    def call(
        self,
        method: str,
        path: str,
        data: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        """Make a request, again while the server is gone or busy, and return the answer's body.

        The key in a command makes a retry a repeat.

        Raises
        ------
        LadderHoldoutError
            What the server refused with, as it would be raised beside the ledger.
        LedgerUnreachable
            It did not answer in time.
        """
        token, end = self.token.read(), time.monotonic() + self.timeout
        if not token.isascii() or not token.isprintable() or " " in token:
            raise AccessDenied("The token is none: it has characters that no token has.")
        stated = {**(headers or {}), "Authorization": f"Bearer {token}", "Content-Type": JSON}
        url = self.base + path
        reason = "no answer"
        for pause in _pauses():
            left = end - time.monotonic()
            try:
                answer = _pool(self.base).request(
                    method,
                    url,
                    body=data,
                    headers=stated,
                    timeout=urllib3.Timeout(min(_CONNECT, max(left, 0.1)), max(left, 1.0)),
                    retries=False,
                    redirect=False,
                )
            except urllib3.exceptions.SSLError:
                with _lock():
                    _pools().pop(self.base, None)  # the next call finds what is named by then
                raise LedgerUnreachable(
                    f"The certificate of {self.base} is not one that this machine trusts. Name "
                    f"that of its authority in {_BUNDLES[0]}."
                ) from None
            except urllib3.exceptions.HTTPError as fault:
                reason = type(fault).__name__
            else:
                if answer.status < 300:
                    return answer.data
                if answer.status not in _AGAIN:
                    problem = None
                    with suppress(ValueError):
                        problem = answer.json()
                    raise error_of(problem, answer.status)
                reason = f"status {answer.status}"
            if time.monotonic() + pause > end:
                break
            time.sleep(pause)
        raise LedgerUnreachable(
            f"The server {self.base} did not answer for {self.timeout:g} seconds ({reason}). "
            "Submit again when it is back: what it had recorded is answered as it was."
        )


def _pauses() -> Iterator[float]:
    pause = _FIRST_PAUSE
    while True:
        yield pause * random.uniform(0.5, 1.5)  # clients that wait together do not come together
        pause = min(2 * pause, _LONGEST_PAUSE)


def _pool(base: str) -> urllib3.PoolManager:
    """Return this process's connections to a server."""
    with _lock():
        if base not in _pools():
            _pools()[base] = _new_pool(base)
        return _pools()[base]


def _new_pool(base: str) -> urllib3.PoolManager:
    """Make connections as the environment states: by which proxy, and whom to trust."""
    place = urlsplit(base)
    bundle = next((os.environ[name] for name in _BUNDLES if os.environ.get(name)), None)
    trust = {"ca_cert_dir" if bundle and os.path.isdir(bundle) else "ca_certs": bundle}
    stated: dict[str, Any] = {"num_pools": 1, "maxsize": _POOL, **trust}
    proxy = None if proxy_bypass(place.hostname or "") else getproxies().get(place.scheme)
    if proxy is None:
        return urllib3.PoolManager(**stated)
    server = urlsplit(proxy)
    user = unquote(f"{server.username}:{server.password or ''}") if server.username else None
    headers = urllib3.make_headers(proxy_basic_auth=user)
    return urllib3.ProxyManager(proxy, proxy_headers=headers, **stated)


def place_of(url: object) -> tuple[str, str | None]:
    """Return the server and the holdout's name in a URL.

    Examples
    --------
    >>> place_of("https://host.example/holdouts/churn%202026/")
    ('https://host.example', 'churn 2026')
    >>> place_of("http://127.0.0.1:8765")
    ('http://127.0.0.1:8765', None)
    """
    allowed = "https://host/holdouts/NAME"
    if not isinstance(url, str):
        raise InvalidArgument("url", allowed, as_given(url))
    try:
        parts = urlsplit(url.strip())
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise InvalidArgument("url", allowed, "no URL") from None
    path, separator, name = parts.path.removesuffix("/").rpartition("/holdouts/")
    fine = parts.scheme in ("http", "https") and host and not (parts.query or parts.fragment)
    if not fine or "@" in parts.netloc or "/" in name:
        actual = "one with a user or password" if "@" in parts.netloc else "another"
        raise InvalidArgument("url", allowed, actual)
    if not separator:
        path, name = parts.path, ""
    if parts.scheme == "http" and host not in _LOCAL:
        errors.warn(
            "Token and predictions go to this server in the clear: let it serve https.",
            errors.LadderHoldoutWarning,
        )
    path = path.removesuffix("/").removesuffix("/v1")
    return f"{parts.scheme}://{parts.netloc}{path}", unquote(name) or None


def path_of(name: str, *parts: str) -> str:
    """Return the path of a holdout, or of something of it, in the API."""
    quoted = quote(name, safe="")
    if name in (".", ".."):  # of an older ledger: left as they are they lead elsewhere
        quoted = name.replace(".", "%2E")
    return "/".join(("/v1/holdouts", quoted, *parts))
