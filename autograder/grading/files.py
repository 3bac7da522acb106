"""Read, copy and unpack submitted files, which are not trusted: regular files only, no links, up to a limit."""

from __future__ import annotations

import errno
import gzip
import os
import re
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, BinaryIO, NamedTuple, cast

MIB = 2**20
#: Far more than any ordinary notebook of this course has.
MAX_BYTES = 20 * MIB
#: The most bytes that are copied or unpacked of a class, and of one learner; and the most entries of one learner.
CLASS_BYTES = 8 * 1024 * MIB
LEARNER_BYTES, LEARNER_FILES = 100 * MIB, 2_000
#: The bytes of a disk that stay free for others.
RESERVE = 64 * MIB
#: How many entries of a learner's folder are looked at, and how deep.
ENTRIES, DEPTH = 50_000, 20

_RATIO, _RATIO_FROM = 200, 4 * MIB  # text compresses to a tenth, seldom to a hundredth
#: The largest table of contents of a zip archive: zipfile makes an object of half a kilobyte for every 50 bytes of it.
_CONTENTS = 16 * MIB
_CHUNK = 2**16
_MOST_NOTES = 50
TOO_MANY = "there are too many entries of this learner's."


class UnreadableError(Exception):
    """A submitted file cannot be read. The message tells what is wrong with it."""


class DiskFullError(Exception):
    """The disk is full. The message continues a sentence, and says whose disk it is."""


@dataclass
class Share:
    """The bytes and entries of one learner that are still read, whether or not they are kept. `limit`: of the bytes,
    in words."""

    bytes: int
    entries: int
    limit: str

    def read(self, size: int) -> None:
        """Count bytes. Raises _EntryError if there are too many."""
        self.bytes -= size
        if self.bytes < 0:
            raise _EntryError(self.limit)


def shares(folder: Path, learners: int, most: int = 0) -> Callable[[], Share]:
    """Return a function that makes a learner's share of what may be written to a folder, the same for all of a class.

    most: the most bytes of one learner, where LEARNER_BYTES does not hold. A small disk gives small shares, so no
    learner takes what another one needs.
    """
    learners = max(learners, 1)
    size, limit = min(most or LEARNER_BYTES, CLASS_BYTES // learners), "there are more than {} of this learner's."
    free = max(shutil.disk_usage(folder).free - RESERVE, 0) // learners
    if free < size:
        size = free
        limit = (
            f"there are more than {{}} of this learner's, which is the share of each in what is free in {folder}. This "
            "is the disk of who grades: make space there and try again."
        )
    size_text = limit.format(f"{size // MIB} MiB" if size >= MIB else f"{size:,} bytes")
    return lambda: Share(size, LEARNER_FILES, size_text)


def disk_full(error: OSError, folder: Path) -> DiskFullError | None:
    """Return what to tell if an error says that a disk is full."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return None
    return DiskFullError(
        f"there is no space left in {folder}. This is the disk of who grades: make space there and try again."
    )


def open_plain(path: Path) -> BinaryIO:
    """Open a file without following links anywhere in its path. Raises UnreadableError for anything but a regular file.

    Hard links are read: their maker could have copied the file, and refusing it would punish the owner of the
    other name.
    """
    # O_NONBLOCK: opening a pipe without a writer must not block.
    handle = _open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    about = os.fstat(handle)
    if stat.S_ISREG(about.st_mode):
        return os.fdopen(handle, "rb")
    os.close(handle)
    raise UnreadableError(f"{path.name} is not a regular file (but a folder, a pipe or a device).")


def _open(path: Path, flags: int) -> int:
    """Open a path without following links anywhere in it. Raises UnreadableError."""
    path = Path(os.path.abspath(path))
    folder = None
    try:
        # Folder by folder, so that no part of the path can be replaced after it was checked.
        for part in path.parts[:-1]:
            inner = os.open(part, getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            if folder is not None:
                os.close(folder)
            folder = inner
        return os.open(path.name, flags | os.O_NOFOLLOW, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise UnreadableError(
                f"{path.name} is a link, or is reached through one; links are not followed."
            ) from None
        raise UnreadableError(f"{path.name} cannot be read: {error.strerror}.") from None
    finally:
        if folder is not None:
            os.close(folder)


def read_bytes(path: Path, limit: int = MAX_BYTES) -> bytes:
    """Return the contents of a file. Raises UnreadableError unless it is a regular file of at most `limit` bytes."""
    with open_plain(path) as file:
        try:
            data = file.read(limit + 1)
        except OSError as error:
            raise UnreadableError(f"{path.name} cannot be read: {error.strerror}.") from None
    if len(data) > limit:
        size = f"{limit // MIB} MiB" if limit >= MIB else f"{limit} bytes"
        raise UnreadableError(f"{path.name} is larger than {size}; it was not read.")
    return data


def read_text(path: Path, limit: int = MAX_BYTES) -> str:
    """Return the text of a UTF-8 file, without a byte-order mark. Raises UnreadableError as `read_bytes` does."""
    try:
        return read_bytes(path, limit).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UnreadableError(f"{path.name} is not UTF-8 text.") from None


def printable(name: str) -> str:
    """Return an untrusted name so that it can be printed in a message."""
    name = "".join(ch if ch.isprintable() else "?" for ch in name)
    return name if len(name) <= 120 else f"{name[:60]}…{name[-50:]}"


class _EntryError(Exception):
    """An entry is skipped. The message completes a sentence that begins with its name."""


class _Notes(list[str]):
    """The first sentences about a folder or an archive: a learner chooses how many there would be."""

    def add(self, sentence: str) -> None:
        if len(self) < _MOST_NOTES:
            self.append(sentence)
        elif len(self) == _MOST_NOTES:
            self.append(f"More entries were skipped; only the first {_MOST_NOTES} are listed.")


# Folders


class Walked(NamedTuple):
    """An entry of a folder. `path`: relative to it; `about`: its own status, a link's for a link."""

    path: Path
    about: os.stat_result


def walk(folder: Path, skip: Callable[[Path], bool]) -> Iterator[Walked]:
    """Yield the first entries below a folder, the shallowest and of these notebooks first, without following links.

    skip: whether to leave out an entry, and what is below it, by its path relative to the folder.
    """
    waiting, most = deque([Path()]), ENTRIES
    while waiting and most > 0:
        inside = waiting.popleft()
        try:
            handle = _open(folder / inside, os.O_RDONLY | os.O_DIRECTORY)
        except UnreadableError:
            continue
        try:
            with os.scandir(handle) as entries:
                members = [Walked(inside / one.name, one.stat(follow_symlinks=False)) for one in islice(entries, most)]
        except OSError:  # an entry is gone
            continue
        finally:
            os.close(handle)
        most -= len(members)
        for one in sorted(members, key=lambda one: (one.path.suffix != ".ipynb", one.path)):
            if not skip(one.path):
                yield one
                if stat.S_ISDIR(one.about.st_mode) and len(one.path.parts) < DEPTH:
                    waiting.append(one.path)


def copy(source: Path, target: Path, share: Share, skip: Callable[[Path], bool], owner: int) -> tuple[list[str], float]:
    """Copy the regular files below a folder that belong to `owner`.

    skip: as for `walk`. Return a sentence for each entry that was not copied, and the time at which the last one that
    was copied had been changed. Raises DiskFullError, and UnreadableError for a folder that is a link.
    """
    os.close(_open(source, os.O_RDONLY | os.O_DIRECTORY))
    target.mkdir(parents=True)
    notes, latest = _Notes(), os.lstat(source).st_ctime
    for path, about in walk(source, skip):
        try:
            if not (stat.S_ISDIR(about.st_mode) or stat.S_ISREG(about.st_mode)):
                raise _EntryError("it is a link, a pipe or a device.")
            share.entries -= 1
            if share.entries < 0:
                notes.add(f"{printable(str(path))} and what follows was not copied: {TOO_MANY}")
                break
            if stat.S_ISDIR(about.st_mode):
                (target / path).mkdir()
            else:
                latest = max(latest, _copy(source / path, target / path, share, owner))
        except (_EntryError, UnreadableError) as why:
            notes.add(f"{printable(str(path))} was not copied: {why}")
        except OSError as error:  # a path that is too long, or below a folder that was not copied
            if full := disk_full(error, target):
                raise full from None
            notes.add(f"{printable(str(path))} was not copied: {error.strerror}.")
    return notes, latest


def _copy(source: Path, target: Path, share: Share, owner: int) -> float:
    """Copy one file, and return the time at which it was changed."""
    # Something else may have taken the file's place after any look at its name, so look at what has been opened.
    with open_plain(source) as file:
        about = os.fstat(file.fileno())
        if about.st_uid != owner:
            raise _EntryError("it is not a file of the learner's.")
        if about.st_size > share.bytes:
            raise _EntryError(share.limit)
        _fill(target, _pieces(file), share.read)
    return about.st_ctime


def _fill(target: Path, pieces: Iterator[bytes], count: Callable[[int], None]) -> None:
    """Write a new file; remove it on failure. count: called with the size of each piece. Raises DiskFullError."""
    with target.open("xb") as out:
        try:
            for piece in pieces:
                count(len(piece))
                try:
                    out.write(piece)
                    out.flush()
                except OSError as error:
                    raise disk_full(error, target.parent) or error from None
        except BaseException:
            target.unlink()
            raise


# Archives


class _ArchiveError(Exception):
    """Nothing more is read from an archive. The message completes a sentence that begins with its name."""


#: The parts of an entry's path → what tells it from others of which only the first is unpacked; None: not wanted.
Wanted = Callable[[list[str]], Hashable | None]


def listed(path: Path) -> Iterator[list[str]]:
    """Yield the parts of the paths in an archive that are valid. Raises UnreadableError."""
    with open_plain(path) as file:
        try:
            for name, _ in _entries(path)(file, path.name):
                try:
                    yield _parts(name)
                except _EntryError:
                    continue
        except _ArchiveError:
            return


def unpack(path: Path, into: Path, wanted: Wanted, share_of: Callable[[list[str]], Share]) -> list[str]:
    """Unpack the wanted files of a .zip or .tar.gz into an empty folder, of a zip the shallowest first.

    share_of: the share that an entry counts against. Sizes are counted while reading, regardless of the headers, and of
    files that are refused, too; nested archives are not unpacked. Return a sentence for each entry that was skipped.
    Raises UnreadableError if the file is not an archive, and DiskFullError.
    """
    notes, names = _Notes(), set()
    with open_plain(path) as file:
        try:
            for name, entry in _entries(path)(file, path.name):
                try:
                    parts = _parts(name)
                    entry.check()
                    key = wanted(parts) if parts else None
                    if key is None:
                        continue
                    share = share_of(parts)
                    share.entries -= 1
                    if share.entries < 0:
                        raise _EntryError(TOO_MANY)
                    if key in names:
                        raise _EntryError("there are two files of this name; the first one was used.")
                    _write(entry, into.joinpath(*parts), share)
                    names.add(key)
                except _EntryError as why:
                    notes.add(f"{printable(path.name)}: {printable(name)} was skipped: {why}")
        except _ArchiveError as why:
            notes.add(f"{printable(path.name)}: {why}")
    return notes


def _parts(name: str) -> list[str]:
    """Return the parts of an entry's path. Raises _EntryError if it would leave the target folder or is not valid."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or "\\" in name or ".." in parts or any(re.match(r"[A-Za-z]:", part) for part in parts):
        raise _EntryError("its path leads outside the archive's folder.")
    if not name.isprintable() or len(parts) > 20 or any(len(part.encode("utf-8", "replace")) > 255 for part in parts):
        raise _EntryError("its name is not a valid file name.")
    return parts


def _write(entry: _Entry, target: Path, share: Share) -> None:
    """Write one entry."""
    size = 0
    if share.bytes <= 0:
        raise _EntryError(share.limit)

    def count(piece: int) -> None:
        nonlocal size
        size += piece
        share.read(piece)
        if size > MAX_BYTES:
            raise _EntryError(f"it unpacks to more than {MAX_BYTES / MIB:.0f} MiB.")
        if size > _RATIO_FROM and size > _RATIO * entry.packed():
            raise _EntryError(f"it unpacks to more than {_RATIO} times its size.")

    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _fill(target, entry.chunks(), count)
    except (_EntryError, _ArchiveError, DiskFullError):
        raise
    except Exception as error:
        if isinstance(error, OSError) and (failure := disk_full(error, target.parent)):
            raise failure from None
        # For damaged entries, zipfile raises a dozen kinds of errors, and tarfile several more.
        raise _EntryError(f"it cannot be unpacked ({printable(str(error)) or type(error).__name__}).") from None


class _Entry:
    """An entry of an archive. `check` raises _EntryError, `chunks` yields its bytes, `packed` is its packed size."""

    def __init__(self, check, chunks, packed):
        self.check, self.chunks, self.packed = check, chunks, packed


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    while chunk := file.read(_CHUNK):
        yield chunk


class _Bounded:
    """A file of which one read gives at most _CONTENTS bytes: a larger table of contents is a truncated one."""

    def __init__(self, file: BinaryIO):
        self.file, self.seek, self.tell, self.seekable = file, file.seek, file.tell, file.seekable

    def read(self, size: int = -1) -> bytes:
        return self.file.read(min(size, _CONTENTS))


def _entries(path: Path) -> Callable[[BinaryIO, str], Iterator[tuple[str, _Entry]]]:
    return _zip_entries if path.suffix.lower() == ".zip" else _tar_entries


def _zip_entries(file: BinaryIO, name: str) -> Iterator[tuple[str, _Entry]]:
    try:
        archive = zipfile.ZipFile(_Bounded(file))
    except Exception as error:
        raise UnreadableError(f"{printable(name)} is damaged: it cannot be read as a zip archive ({error}).") from None
    with archive:
        for info in sorted(archive.infolist(), key=lambda info: info.orig_filename.count("/")):

            def check(info=info):
                kind = stat.S_IFMT(info.external_attr >> 16)
                if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                    raise _EntryError("it is a link or a device, not a regular file.")
                if info.flag_bits & 1:
                    raise _EntryError("it is encrypted.")
                if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    # zipfile unpacks 64 KiB of these at once, into gigabytes.
                    raise _EntryError("it is packed in an unusual way. Pack it again with the usual method (deflate).")

            def chunks(info=info):
                with archive.open(info) as inner:
                    yield from _pieces(inner)

            if not info.orig_filename.endswith("/"):
                # `orig_filename` is the name in the archive, before zipfile truncates and normalizes it.
                yield info.orig_filename, _Entry(check, chunks, lambda info=info: info.compress_size)


class _Counted:
    """The unpacked bytes of a .tar.gz. Reading stops when they are far too many for the packed size."""

    def __init__(self, file: gzip.GzipFile, packed: BinaryIO):
        self.file, self.packed, self.size = file, packed, 0

    def read(self, size: int) -> bytes:
        data = self.file.read(size)
        self.size += len(data)
        if self.size > _RATIO_FROM and self.size > _RATIO * self.packed.tell():
            raise _ArchiveError(f"it unpacks to more than {_RATIO} times its size; the rest was not read.")
        return data


def _tar_entries(file: BinaryIO, name: str) -> Iterator[tuple[str, _Entry]]:
    started = False
    try:
        with tarfile.open(fileobj=cast(BinaryIO, _Counted(gzip.GzipFile(fileobj=file), file)), mode="r|") as archive:
            for info in archive:
                started = True

                def check(info=info):
                    if not (info.isreg() or info.isdir()) or info.issparse():
                        raise _EntryError("it is a link or a device, not a regular file.")

                def chunks(info=info):
                    return _pieces(cast(IO[bytes], archive.extractfile(info)))

                if not info.isdir():
                    yield info.name, _Entry(check, chunks, lambda: MAX_BYTES)
    except (tarfile.TarError, OSError, EOFError, zlib.error, ValueError) as error:
        if not started:
            raise UnreadableError(f"{printable(name)} is damaged: it cannot be read as a .tar.gz ({error}).") from None
        raise _ArchiveError(f"it is damaged after the first entries ({error}); the rest was not read.") from None
