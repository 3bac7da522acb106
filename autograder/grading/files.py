"""Read submitted files, which are not trusted: regular files only, no links, up to a limit; and archives of them."""

from __future__ import annotations

import errno
import gzip
import os
import re
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

MIB = 2**20
#: Far more than any ordinary notebook of this course has.
MAX_BYTES = 20 * MIB
#: Limits for the archive of a class, and for the archive of one learner.
CLASS_BYTES, CLASS_FILES = 8 * 1024 * MIB, 100_000
LEARNER_BYTES, LEARNER_FILES = 100 * MIB, 2_000

_RATIO, _RATIO_FROM = 200, 4 * MIB  # text compresses to a tenth, seldom to a hundredth
#: The largest table of contents of a zip archive: zipfile makes an object of half a kilobyte for every 50 bytes of it.
_CONTENTS = 16 * MIB
_CHUNK = 2**16
_MOST_NOTES = 50


class Damaged(Exception):
    """A submitted file cannot be read. The message tells what is wrong with it."""


def open_plain(path: Path) -> BinaryIO:
    """Open a file without following links anywhere in its path. Raises Damaged for anything but a regular file.

    Hard links are read: whoever made one could have copied the file, and refusing it would punish the owner of the
    other name.
    """
    path = Path(os.path.abspath(path))
    folder = None
    try:
        # Folder by folder, so that no part of the path can be replaced after it was checked.
        for part in path.parts[:-1]:
            flags = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW
            inner = os.open(part, flags, dir_fd=folder)
            if folder is not None:
                os.close(folder)
            folder = inner
        # O_NONBLOCK: opening a pipe without a writer must not block.
        handle = os.open(path.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise Damaged(f"{path.name} is a link, or is reached through one; links are not followed.") from None
        raise Damaged(f"{path.name} cannot be read: {error.strerror}.") from None
    finally:
        if folder is not None:
            os.close(folder)
    about = os.fstat(handle)
    if stat.S_ISREG(about.st_mode):
        return os.fdopen(handle, "rb")
    os.close(handle)
    raise Damaged(f"{path.name} is not a regular file (but a folder, a pipe or a device).")


def read_bytes(path: Path, limit: int = MAX_BYTES) -> bytes:
    """Return the contents of a file. Raises Damaged unless it is a regular file of at most `limit` bytes."""
    with open_plain(path) as file:
        try:
            data = file.read(limit + 1)
        except OSError as error:
            raise Damaged(f"{path.name} cannot be read: {error.strerror}.") from None
    if len(data) > limit:
        size = f"{limit // MIB} MiB" if limit >= MIB else f"{limit} bytes"
        raise Damaged(f"{path.name} is larger than {size}; it was not read.")
    return data


def read_text(path: Path, limit: int = MAX_BYTES) -> str:
    """Return the contents of a UTF-8 file as text, without a byte-order mark. Raises Damaged as `read_bytes` does."""
    try:
        return read_bytes(path, limit).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Damaged(f"{path.name} is not UTF-8 text.") from None


def printable(name: str) -> str:
    """Return an untrusted name so that it can be printed in a message."""
    name = "".join(ch if ch.isprintable() else "?" for ch in name)
    return name if len(name) <= 120 else f"{name[:60]}…{name[-50:]}"


# Archives


class _Refused(Exception):
    """An entry is skipped. The message completes a sentence that begins with its name."""


class _Stop(Exception):
    """Nothing more is read from an archive. The message completes a sentence that begins with its name."""


def unpack(path: Path, into: Path, suffixes: tuple[str, ...], total: int, most: int) -> list[str]:
    """Unpack the files of a .zip or .tar.gz whose names end in one of `suffixes` into an empty folder.

    total: the most bytes to unpack. most: the most entries to read. Sizes are counted while reading, regardless of the
    headers; nested archives are not unpacked. Return a sentence for each entry that was skipped. Raises Damaged if the
    file is not an archive.
    """
    notes: list[str] = []
    count = written = 0
    taken: set[str] = set()

    def note(sentence: str) -> None:
        if len(notes) < _MOST_NOTES:
            notes.append(f"{printable(path.name)}: {sentence}")
        elif len(notes) == _MOST_NOTES:
            notes.append(f"{printable(path.name)}: more entries were skipped; only the first {_MOST_NOTES} are listed.")

    with open_plain(path) as file:
        try:
            for name, entry in (_zip_entries if path.suffix.lower() == ".zip" else _tar_entries)(file, path.name):
                count += 1
                if count > most:
                    raise _Stop(f"it has more than {most:,} entries; the rest was not read.")
                try:
                    parts = _parts(name)
                    entry.check()
                    if not parts or not parts[-1].lower().endswith(suffixes):
                        continue
                    if (known := "/".join(parts).casefold()) in taken:
                        raise _Refused("there are two files of this name; the first one was used.")
                    taken.add(known)
                    written += _write(entry, into.joinpath(*parts), min(MAX_BYTES, total - written))
                except _Refused as why:
                    note(f"{printable(name)} was skipped: {why}")
                if written >= total:
                    raise _Stop(f"it unpacks to more than {total // MIB} MiB; the rest was not read.")
        except _Stop as why:
            note(str(why))
    return notes


def _parts(name: str) -> list[str]:
    """Return the parts of an entry's path. Raises _Refused if it would leave the target folder or is not valid."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or "\\" in name or ".." in parts or any(re.match(r"[A-Za-z]:", part) for part in parts):
        raise _Refused("its path leads outside the archive's folder.")
    if not name.isprintable() or len(parts) > 20 or any(len(part.encode("utf-8", "replace")) > 255 for part in parts):
        raise _Refused("its name is not a valid file name.")
    return parts


def _write(entry: _Entry, target: Path, limit: int) -> int:
    """Write one entry and return its size in bytes. Raises _Refused if it has more than `limit`."""
    size, out = 0, None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        out = target.open("xb")
        for chunk in entry.chunks():
            size += len(chunk)
            if size > limit:
                raise _Refused(f"it unpacks to more than {limit / MIB:.0f} MiB.")
            if size > _RATIO_FROM and size > _RATIO * entry.packed():
                raise _Refused(f"it unpacks to more than {_RATIO} times its size.")
            out.write(chunk)
        out.close()
        return size
    except Exception as error:
        if out:
            out.close()
            target.unlink()
        if isinstance(error, _Refused | _Stop):
            raise
        # For damaged entries, zipfile raises a dozen kinds of errors, and tarfile several more.
        raise _Refused(f"it cannot be unpacked ({printable(str(error)) or type(error).__name__}).") from None


class _Entry:
    """One entry of an archive. `check` raises _Refused, `chunks` yields its bytes, `packed` returns its packed size."""

    def __init__(self, check, chunks, packed):
        self.check, self.chunks, self.packed = check, chunks, packed


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    while chunk := file.read(_CHUNK):
        yield chunk


class _Bounded:
    """A file of which one read gives at most _CONTENTS bytes: a larger table of contents is a truncated one."""

    def __init__(self, file: BinaryIO):
        self.file, self.seek, self.tell, self.seekable = file, file.seek, file.tell, file.seekable

    def read(self, size: int = -1) -> bytes:
        return self.file.read(min(size, _CONTENTS))


def _zip_entries(file: BinaryIO, name: str) -> Iterator[tuple[str, _Entry]]:
    try:
        archive = zipfile.ZipFile(_Bounded(file))
    except Exception as error:
        raise Damaged(f"{printable(name)} is damaged: it cannot be read as a zip archive ({error}).") from None
    with archive:
        for info in archive.infolist():

            def check(info=info):
                kind = stat.S_IFMT(info.external_attr >> 16)
                if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                    raise _Refused("it is a link or a device, not a regular file.")
                if info.flag_bits & 1:
                    raise _Refused("it is encrypted.")
                if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    # zipfile unpacks 64 KiB of these at once, into gigabytes.
                    raise _Refused("it is packed in an unusual way. Pack it again with the usual method (deflate).")

            def chunks(info=info):
                with archive.open(info) as inner:
                    yield from _pieces(inner)

            if not info.is_dir():
                # `orig_filename` is the name in the archive, before zipfile truncates and normalizes it.
                yield info.orig_filename, _Entry(check, chunks, lambda info=info: info.compress_size)


class _Counted:
    """The unpacked bytes of a .tar.gz. Reading stops when they are far too many for the packed size."""

    def __init__(self, file: BinaryIO, packed: BinaryIO):
        self.file, self.packed, self.size = file, packed, 0

    def read(self, size: int) -> bytes:
        data = self.file.read(size)
        self.size += len(data)
        if self.size > _RATIO_FROM and self.size > _RATIO * self.packed.tell():
            raise _Stop(f"it unpacks to more than {_RATIO} times its size; the rest was not read.")
        return data


def _tar_entries(file: BinaryIO, name: str) -> Iterator[tuple[str, _Entry]]:
    started = False
    try:
        with tarfile.open(fileobj=_Counted(gzip.GzipFile(fileobj=file), file), mode="r|") as archive:
            for info in archive:
                started = True

                def check(info=info):
                    if not (info.isreg() or info.isdir()) or info.issparse():
                        raise _Refused("it is a link or a device, not a regular file.")

                def chunks(info=info):
                    return _pieces(archive.extractfile(info))

                if not info.isdir():
                    yield info.name, _Entry(check, chunks, lambda: MAX_BYTES)
    except (tarfile.TarError, OSError, EOFError, zlib.error, ValueError) as error:
        if not started:
            raise Damaged(f"{printable(name)} is damaged: it cannot be read as a .tar.gz ({error}).") from None
        raise _Stop(f"it is damaged after the first entries ({error}); the rest was not read.") from None
