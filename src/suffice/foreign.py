"""Files that a stranger may have written: which places and hosts they may name."""

from __future__ import annotations

import glob
import ipaddress
import os
import re
import tomllib
from pathlib import Path
from typing import Any

from suffice.errors import DataError, read_plain

_MOST_BYTES, _MOST_DOTS = 128 << 10, 200  # of a TOML file; in one of its lines
# every reader of URLs agrees on these: no user with a backslash, no host in another spelling
_URL = re.compile(
    r"https?://(?:[^@/\\?#\s]*@)?(\[[\da-f:.]+\]|[\w.-]+)(?::\d*)?(?:[/?#]\S*)?", re.ASCII | re.I
)


def read_toml(path: Path) -> dict[str, Any]:
    """Return a TOML document of at most 128 KiB; ValueError: it is none, or too deep."""
    text = read_plain(path, _MOST_BYTES).decode("utf-8-sig")
    if any(line.count(".") > _MOST_DOTS for line in text.split("\n")):
        raise ValueError(f"a line holds more than {_MOST_DOTS} dots")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def named_place(file: Path, named: str) -> str:
    """Return a place that a file names, from its folder on, as a path from here or an absolute one.

    It lies below the nearest folder above the file that holds ``.git``, else below the file's own. So do
    the entries of a named folder, and what lies beside a named file under its name. Else a DataError.
    """
    home = file.parent.resolve()
    root = next((one for one in (home, *home.parents) if (one / ".git").exists()), home)
    try:
        place = (home / named).resolve()
        reached = [place, *place.parent.glob(f"{glob.escape(place.stem)}.*")]
        reached += place.iterdir() if place.is_dir() else ()
        outside = not all(one.resolve().is_relative_to(root) for one in reached)
    except (OSError, ValueError, RuntimeError) as error:
        raise DataError(f"names no place: {named!r:.80} ({error})", file=str(file)) from error
    if outside or Path(named).is_absolute():
        raise DataError(
            f"names {named!r:.80}, and only places below {root} may be named, without a / at the beginning; "
            "copy the file there",
            file=str(file),
        )
    # with a colon a path from here might read as the address of a database
    near = place.is_relative_to(Path.cwd()) and ":" not in str(place)
    return os.path.relpath(place) if near else str(place)


def is_here(host: str) -> bool:
    """Return whether a host is this machine by its spelling: ``localhost``, or a loopback address."""
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return host.lower() == "localhost"
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def check_host(host: str, file: Path) -> None:
    """Refuse a host that a file names, unless it is this machine or in ``SUFFICE_ALLOW_HOSTS``."""
    allowed = re.split(r"[\s,\[\]]+", os.environ.get("SUFFICE_ALLOW_HOSTS", "").lower())
    if not is_here(host) and host.strip("[]").lower() not in allowed:
        raise DataError(
            f"names the host {host!r:.100}, to which passwords and keys of the environment would go; if you "
            f"trust it, set SUFFICE_ALLOW_HOSTS={host:.100}, or name it on the command line",
            file=str(file),
        )


def check_url(url: str, file: Path) -> None:
    """Refuse a URL that a file names, unless its host may be named, see :func:`check_host`."""
    if (found := _URL.fullmatch(url)) is None:
        raise DataError("names no plain http:// or https:// URL of a host", file=str(file))
    check_host(found[1], file)
