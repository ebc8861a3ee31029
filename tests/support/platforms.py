"""What only some systems have: what the package asks for in one module, and how to take it away."""

from __future__ import annotations

MODULES = ("fcntl", "grp", "pwd", "resource", "termios")
"""Modules of the standard library that Windows lacks."""

CALLS = (
    *("fork", "forkpty", "register_at_fork", "getuid", "geteuid", "getgid", "getegid", "pread"),
    *("pwrite", "preadv", "pwritev", "fchmod", "fchown", "chown", "lchown", "fdatasync", "sync"),
    *("statvfs", "fstatvfs", "mkfifo", "lockf", "sendfile", "setsid", "killpg", "nice"),
    *("posix_fadvise", "posix_fallocate", "O_NONBLOCK", "O_NOFOLLOW", "O_DIRECTORY", "O_CLOEXEC"),
)
"""Names of `os` that Windows lacks."""

DIFFER = ("O_BINARY", "chmod", "fsync", "kill", "name", "open", "umask")
"""Names of `os` that mean something else there."""

# What others ask for where `sys.platform` is Linux stays.
HIDE = f"""
import multiprocessing, os, sys
import platformdirs  # which imports one of them by name on Linux
for name in {CALLS}:
    if hasattr(os, name):
        delattr(os, name)
for name in {MODULES}:
    sys.modules[name] = None
multiprocessing.set_start_method("spawn")
multiprocessing.context._concrete_contexts = {{
    "spawn": multiprocessing.context._concrete_contexts["spawn"]
}}
multiprocessing.get_all_start_methods = lambda: ["spawn"]
"""
"""A sitecustomize.py that hides them in a process and in all that it starts."""
