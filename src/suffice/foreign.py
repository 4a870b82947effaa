"""Files that a stranger may have written: how much of them is read, which places and hosts they may name."""

from __future__ import annotations

import glob
import ipaddress
import os
import re
import stat
import tomllib
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import Any

from suffice.errors import DataError

ALLOWED_HOSTS = "SUFFICE_ALLOW_HOSTS"
MOST_BYTES = 2 << 30
"""Most bytes that are read of a file at once, packed or not."""
_MOST_SETTINGS, _MOST_DOTS = 128 << 10, 200  # bytes of a TOML file; dots in one of its lines
_ROOMY, _MOST_TIMES, _PIECE = 64 << 20, 100, 1 << 20
_NO_FILES = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
# every reader of URLs agrees on these: no user with a backslash, no host in another spelling
_URL = re.compile(
    r"https?://(?:[^@/\\?#\s]*@)?(\[[\da-f:.]+\]|[\w.-]+)(?::\d*)?(?:[/?#]\S*)?", re.ASCII | re.I
)


# --- reading ---------------------------------------------------------------------------------------
def _check_kind(mode: int, path: str | Path) -> None:
    if (found := _NO_FILES.get(stat.S_IFMT(mode))) is not None:
        said = f"is {found}, not a file; write its contents into a file and name that"
        raise DataError(said, file=str(path))


def plain_file(path: Path) -> Path:
    """Return the path, but refuse a pipe, socket or device: reading one may never end."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return path  # said by whoever opens it
    _check_kind(mode, path)
    return path


def open_plain(path: Path) -> BufferedReader:
    """Open a file to read its bytes; one that became a pipe meanwhile is refused, too."""

    def opener(name: str, flags: int) -> int:
        handle = os.open(name, flags | getattr(os, "O_NONBLOCK", 0))
        try:
            _check_kind(os.fstat(handle).st_mode, path)
        except DataError:
            os.close(handle)
            raise
        return handle

    return open(plain_file(path), "rb", opener=opener)


def read_plain(path: Path, most: int = MOST_BYTES) -> bytes:
    """Return the bytes of a file; a pipe, socket or device, or a larger file, is a DataError."""
    with open_plain(path) as stream:
        return at_most(stream, most, path)


def at_most(stream: Any, most: int, path: Path) -> bytes:
    """Return what is left of a stream; more than ``most`` bytes are a DataError."""
    held = BytesIO()  # piece by piece: a read of many bytes takes memory for all of them first
    while held.tell() <= most and (piece := stream.read(_PIECE)):
        held.write(piece)
    if held.tell() > most:
        raise DataError(f"holds more than {most:,} bytes, unpacked; split it", file=str(path))
    return held.getvalue()


def most_unpacked(packed: int) -> int:
    """Return how many bytes some packed ones may unpack to: 100 times as many, or 64 MiB, at most 2 GiB."""
    return min(MOST_BYTES, max(_ROOMY, _MOST_TIMES * packed))


def read_toml(path: Path) -> dict[str, Any]:
    """Return a TOML document of at most 128 KiB; ValueError: it is none, or too deep."""
    text = read_plain(path, _MOST_SETTINGS).decode("utf-8")
    if any(line.count(".") > _MOST_DOTS for line in text.split("\n")):
        raise ValueError(f"a line holds more than {_MOST_DOTS:,} dots")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


# --- places ----------------------------------------------------------------------------------------
def named_place(file: Path, named: str) -> Path:
    """Return the real place that a file names, from its folder on.

    It lies below the nearest folder above the file that holds ``.git``, else below the file's own. So do
    the entries of a named folder, and what lies beside a named file under its name. Else a DataError.
    """
    home = file.parent.resolve()
    root = next((one for one in (home, *home.parents) if (one / ".git").exists()), home)
    try:
        place = (home / named).resolve()
        beside = [place, *place.parent.glob(f"{glob.escape(place.stem)}.*")]
        beside += place.iterdir() if place.is_dir() else ()
        reached = [one.resolve() for one in beside]
    except (OSError, ValueError, RuntimeError) as error:
        raise DataError(f"names no place: {named!r:.80} ({error})", file=str(file)) from error
    outside = next((one for one in reached if not one.is_relative_to(root)), None)
    if outside is not None or Path(named).is_absolute():
        raise DataError(
            f"names {named!r:.80}, and only places below {root} may be named, without a / at the beginning; "
            "copy the file there",
            file=str(file),
        )
    return place


# --- hosts -----------------------------------------------------------------------------------------
def is_here(host: str) -> bool:
    """Return whether a host is this machine by its spelling: ``localhost``, or a loopback address."""
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return host.lower() == "localhost"
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def check_host(host: str, file: Path) -> None:
    """Refuse a host that a file names, unless it is this machine or in ``SUFFICE_ALLOW_HOSTS``."""
    allowed = re.split(r"[\s,]+", os.environ.get(ALLOWED_HOSTS, "").lower())
    if not (is_here(host) or host.strip("[]").lower() in (one.strip("[]") for one in allowed)):
        raise DataError(
            f"names the host {host!r:.100}, to which passwords and keys of the environment would go; if you "
            f"trust it, set {ALLOWED_HOSTS}={host:.100}, or name it on the command line",
            file=str(file),
        )


def check_url(url: str, file: Path) -> None:
    """Refuse a URL that a file names, unless its host may be named, see :func:`check_host`."""
    if (found := _URL.fullmatch(url)) is None:
        raise DataError("names no plain http:// or https:// URL of a host", file=str(file))
    check_host(found[1], file)
