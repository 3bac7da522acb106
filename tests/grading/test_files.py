"""Reading what strangers handed in: links, pipes, and archives that want to be somewhere else or too large."""

from __future__ import annotations

import errno
import io
import os
import socket
import stat
import tarfile
import tracemalloc
import zipfile

import pytest

from autograder.grading import files
from autograder.grading.files import UnreadableError, read_bytes, read_text, unpack


@pytest.fixture
def into(tmp_path):
    folder = tmp_path / "into"
    folder.mkdir()
    return folder


def notebooks(parts):
    return "/".join(parts).casefold() if parts[-1].lower().endswith(".ipynb") else None


def unpacked(path, into, total=files.LEARNER_BYTES, most=files.LEARNER_FILES):
    """The notes, and what lies in the folder afterwards."""
    share = files.Share(total, most, "there are too many bytes.")
    notes = unpack(path, into, notebooks, lambda _: share)
    return notes, sorted(str(p.relative_to(into)) for p in into.rglob("*") if not p.is_dir())


# Files


def test_an_ordinary_file_is_read_up_to_its_limit(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("\ufeffé".encode())
    assert read_text(path) == "é" and read_bytes(path, 5) == b"\xef\xbb\xbf\xc3\xa9"
    with pytest.raises(UnreadableError, match=r"a.txt is larger than 4 bytes; it was not read."):
        read_bytes(path, 4)
    path.write_bytes(b"\xff")
    with pytest.raises(UnreadableError, match="not UTF-8 text"):
        read_text(path)


def test_no_link_is_followed_wherever_it_stands(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real/a.txt").write_text("secret")
    (tmp_path / "folder").symlink_to(tmp_path / "real")
    (tmp_path / "a.txt").symlink_to(tmp_path / "real/a.txt")
    os.link(tmp_path / "real/a.txt", tmp_path / "hard.txt")
    for name, sentence in [("folder/a.txt", "reached through one"), ("a.txt", "is a link")]:
        with pytest.raises(UnreadableError, match=sentence):
            read_text(tmp_path / name)
    assert read_text(tmp_path / "hard.txt") == read_text(tmp_path / "real/a.txt") == "secret"


def test_a_pipe_a_socket_a_folder_and_nothing_do_not_make_it_wait(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "socket"))
    for name, sentence in [
        ("pipe", "not a regular file"),
        ("folder", "not a regular file"),
        ("socket", "cannot be read"),
        ("nothing", "No such file"),
    ]:
        with pytest.raises(UnreadableError, match=sentence):
            read_bytes(tmp_path / name)
    listener.close()


def test_reading_leaves_no_descriptor_open(tmp_path):
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "link").symlink_to("a.txt")
    before = len(os.listdir("/dev/fd"))
    read_text(tmp_path / "a.txt")
    for name in ("link", "nothing", "."):
        with pytest.raises(UnreadableError):
            read_text(tmp_path / name)
    assert len(os.listdir("/dev/fd")) == before


# Zip


def zipped(path, entries, how=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", how) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return path


def test_wanted_files_are_unpacked_and_the_rest_is_not(tmp_path, into):
    entries = {"ada/day01/": "", "ada/day01/graphs.ipynb": "1", "./bob//day01/GRAPHS.IPYNB": "2"}
    path = zipped(tmp_path / "class.zip", entries | {"ada/data.csv": "3", "ada/inner.zip": "4"})
    assert unpacked(path, into) == ([], ["ada/day01/graphs.ipynb", "bob/day01/GRAPHS.IPYNB"])


@pytest.mark.parametrize(
    "name",
    ["../x.ipynb", "a/../../x.ipynb", "/tmp/x.ipynb", "C:/x.ipynb", "a/c:x.ipynb", "a\\..\\x.ipynb", "..\\x.ipynb",
     "a\0b.ipynb", "a\nb.ipynb", "a/" * 30 + "x.ipynb", "x" * 300 + ".ipynb"],
)  # fmt: skip
def test_an_entry_that_leads_out_is_named_and_the_rest_goes_on(tmp_path, into, name):
    path = tmp_path / "hw.zip"
    with zipfile.ZipFile(path, "w") as archive:
        info = zipfile.ZipInfo("x")
        info.filename = info.orig_filename = name  # zipfile would cut it at the NUL
        archive.writestr(info, "{}")
        archive.writestr("good.ipynb", "{}")
    outside = set(tmp_path.rglob("*"))
    notes, result = unpacked(path, into)
    assert result == ["good.ipynb"] and set(tmp_path.rglob("*")) - outside == {into / "good.ipynb"}
    assert len(notes) == 1 and notes[0].startswith("hw.zip: ") and "was skipped: " in notes[0]
    assert "\n" not in notes[0] and "\0" not in notes[0]


def test_links_duplicates_and_folders_in_the_way(tmp_path, into):
    path = tmp_path / "hw.zip"
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(path, "w") as archive:
        link = zipfile.ZipInfo("link.ipynb")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
        archive.writestr("a.ipynb", "first")
        archive.writestr("a.ipynb", "second")
        archive.writestr("A.ipynb", "third")
        archive.writestr("a.ipynb/b.ipynb", "fourth")
    notes, result = unpacked(path, into)
    assert result == ["a.ipynb"] and (into / "a.ipynb").read_text() == "first"
    assert [note.removeprefix("hw.zip: ").split(" (")[0] for note in notes] == [
        "link.ipynb was skipped: it is a link or a device, not a regular file.",
        "a.ipynb was skipped: there are two files of this name; the first one was used.",
        "A.ipynb was skipped: there are two files of this name; the first one was used.",
        "a.ipynb/b.ipynb was skipped: it cannot be unpacked",
    ]


def test_a_bomb_is_stopped_while_it_is_read(tmp_path, into):
    entries = {"bomb.ipynb": bytes(200 * files.MIB), "good.ipynb": "{}", "less.ipynb": bytes(10 * files.MIB)}
    path = zipped(tmp_path / "hw.zip", entries, zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 220_000
    # A header that lies about the size, in both places.
    data = path.read_bytes().replace((200 * files.MIB).to_bytes(4, "little"), (10).to_bytes(4, "little"))
    for content, why in [(path.read_bytes(), "more than 20 MiB"), (data, "cannot be unpacked")]:
        path.write_bytes(content)
        for old in into.iterdir():
            old.unlink()
        tracemalloc.start()
        notes, found = unpacked(path, into)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert found == ["good.ipynb"] and "bomb.ipynb was skipped" in notes[0] and why in notes[0]
        assert "less.ipynb was skipped: it unpacks to more than 200 times its size" in notes[1]
        assert peak < 8 * files.MIB


def test_limits_on_one_file_on_all_files_and_on_their_number(tmp_path, into, monkeypatch):
    path = zipped(tmp_path / "hw.zip", {f"{number:02d}.ipynb": os.urandom(1000) for number in range(60)})
    notes, result = unpacked(path, into, total=3_000)
    assert len(result) == 3 and notes[0] == "hw.zip: 03.ipynb was skipped: there are too many bytes."
    (again := tmp_path / "ten").mkdir()
    notes, result = unpacked(path, again, most=10)
    assert len(result) == 10 and notes[0] == f"hw.zip: 10.ipynb was skipped: {files.TOO_MANY}"
    monkeypatch.setattr(files, "MAX_BYTES", 500)
    (again := tmp_path / "again").mkdir()
    notes, result = unpacked(path, again)
    assert result == [] and len(notes) == 51 and notes[-1].endswith("only the first 50 are listed.")


def test_what_is_refused_counts_too(tmp_path, into, monkeypatch):
    monkeypatch.setattr(files, "MAX_BYTES", 500)
    path = zipped(tmp_path / "hw.zip", {f"{number}.ipynb": bytes(1000) for number in range(5)} | {"z.ipynb": b"{}"})
    notes, result = unpacked(path, into, total=3_000)
    assert result == [] and notes[-1] == "hw.zip: z.ipynb was skipped: there are too many bytes."


def test_of_a_zip_the_shallowest_file_comes_first_and_others_like_it_do_not_come(tmp_path, into):
    path = zipped(tmp_path / "hw.zip", {"a/b/x.ipynb": "deep", "a/x.ipynb": "less", "x.ipynb": "top", "y.ipynb": "y"})
    share = files.Share(3 + 1, 100, "there are too many bytes.")
    notes = unpack(path, into, lambda parts: parts[-1], lambda _: share)
    assert sorted(p.read_text() for p in into.rglob("*.ipynb")) == ["top", "y"] and len(notes) == 2


def test_a_small_disk_is_shared_and_the_sentence_says_whose_it_is(tmp_path, monkeypatch):
    usage = files.shutil.disk_usage(tmp_path)._replace(free=files.RESERVE + 30 * files.MIB)
    monkeypatch.setattr(files.shutil, "disk_usage", lambda _: usage)
    assert files.shares(tmp_path, 3)().bytes == 10 * files.MIB
    assert f"10 MiB of this learner's, which is the share of each in what is free in {tmp_path}" in (
        files.shares(tmp_path, 3)().limit
    )
    monkeypatch.undo()
    assert files.shares(tmp_path, 1, 1_000)() == files.Share(
        1_000, files.LEARNER_FILES, "there are more than 1,000 bytes of this learner's."
    )


def test_a_full_disk_is_no_fault_of_the_archive(tmp_path, into, monkeypatch):
    path = zipped(tmp_path / "hw.zip", {"a.ipynb": "1"})

    def nothing_left(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.Path, "open", nothing_left)
    with pytest.raises(files.DiskFullError, match="This is the disk of who grades: make space there"):
        unpacked(path, into)
    assert not list(into.iterdir())


# Folders


def tree(folder, *paths):
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(path)


def copied(source, target, **more):
    """The notes, and what lies in the folder afterwards."""
    share = files.Share(**({"bytes": 1_000, "entries": 100, "limit": "there are too many bytes."} | more))
    notes, _ = files.copy(source, target, share, lambda path: path.name == "skipped", os.getuid())
    return notes, sorted(str(p.relative_to(target)) for p in target.rglob("*") if not p.is_dir())


def test_links_to_the_own_folder_and_pipes_are_not_copied(tmp_path):
    tree(tmp_path / "from", "x.ipynb", "a/y.ipynb", "skipped/z.ipynb")
    for name, target in (("again", "."), ("a/more", ".."), ("file", "x.ipynb"), ("far", "/etc"), ("gone", "nowhere")):
        (tmp_path / "from" / name).symlink_to(target)
    os.mkfifo(tmp_path / "from/pipe")
    notes, result = copied(tmp_path / "from", tmp_path / "to")
    assert result == ["a/y.ipynb", "x.ipynb"] and len(notes) == 6
    assert "again was not copied: it is a link, a pipe or a device." in notes
    with pytest.raises(UnreadableError, match="links are not followed"):
        copied(tmp_path / "from/again", tmp_path / "again")


def test_bytes_and_entries_are_counted_the_shallowest_first(tmp_path):
    tree(tmp_path / "from", *(f"a{at}/b/c.txt" for at in range(30)), "x.ipynb", "y.ipynb")
    notes, result = copied(tmp_path / "from", tmp_path / "few", entries=40)
    assert result == ["x.ipynb", "y.ipynb"] and files.TOO_MANY in notes[-1]
    (tmp_path / "from/a.bin").write_bytes(bytes(2_000))
    notes, result = copied(tmp_path / "from", tmp_path / "small", bytes=20)
    assert result == ["x.ipynb", "y.ipynb"] and notes[0] == "a.bin was not copied: there are too many bytes."
    (tmp_path / "from/sparse").open("wb").truncate(2**40)
    assert "sparse was not copied: there are too many bytes." in copied(tmp_path / "from", tmp_path / "sparse")[0]


def test_a_folder_as_deep_as_may_be_is_copied_so_far(tmp_path):
    tree(tmp_path / "from", "d/" * 150 + "x.ipynb", "x.ipynb")
    assert copied(tmp_path / "from", tmp_path / "to") == ([], ["x.ipynb"])
    assert len(list(files.walk(tmp_path / "from", lambda _: False))) == files.DEPTH + 1


def test_encrypted_damaged_and_no_archive(tmp_path, into):
    path = zipped(tmp_path / "hw.zip", {"locked.ipynb": "{}", "broken.ipynb": "contents", "good.ipynb": "{}"})
    data = path.read_bytes().replace(b"contents", b"CONTENTS")
    at = data.index(b"PK\1\2")  # flags of the first entry in the directory
    path.write_bytes(data[: at + 8] + b"\1" + data[at + 9 :])
    notes, result = unpacked(path, into)
    assert result == ["good.ipynb"]
    assert "locked.ipynb was skipped: it is encrypted." in notes[0] and "Bad CRC" in notes[1]
    for content in (b"", b"PK\3\4 nothing", data[: len(data) // 2]):
        path.write_bytes(content)
        with pytest.raises(UnreadableError, match="cannot be read as a zip archive"):
            unpacked(path, into)


# Tar


def tarred(path, *entries):
    with tarfile.open(path, "w:gz") as archive:
        for info, content in entries:
            if isinstance(info, str):
                info = tarfile.TarInfo(info)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def special(name, kind, target=""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info, b""


def test_a_tar_of_a_class(tmp_path, into):
    path = tarred(
        tmp_path / "class.tar.gz",
        ("./ada/day01/graphs.ipynb", b"1"),
        ("../evil.ipynb", b"2"),
        ("/abs.ipynb", b"3"),
        special("soft.ipynb", tarfile.SYMTYPE, "/etc/passwd"),
        special("hard.ipynb", tarfile.LNKTYPE, "ada/day01/graphs.ipynb"),
        special("dev.ipynb", tarfile.CHRTYPE),
        special("pipe.ipynb", tarfile.FIFOTYPE),
        ("skipped.bin", os.urandom(100_000)),
        ("bob/day01/graphs.ipynb", b"4"),
    )
    notes, result = unpacked(path, into)
    assert result == ["ada/day01/graphs.ipynb", "bob/day01/graphs.ipynb"]
    assert [note.split()[1] for note in notes] == [
        "../evil.ipynb", "/abs.ipynb", "soft.ipynb", "hard.ipynb", "dev.ipynb", "pipe.ipynb",
    ]  # fmt: skip


def test_a_tar_that_unpacks_to_far_too_much_or_breaks_off(tmp_path, into):
    path = tarred(tmp_path / "b.tgz", ("a.ipynb", b"1"), ("bomb.bin", bytes(100 * files.MIB)), ("z.ipynb", b"2"))
    notes, result = unpacked(path, into)
    assert result == ["a.ipynb"] and "200 times its size; the rest was not read" in notes[0]

    path = tarred(tmp_path / "c.tgz", ("c.ipynb", b"1"), ("d.ipynb", os.urandom(100_000)))
    path.write_bytes(path.read_bytes()[:50_000])
    notes, result = unpacked(path, into)
    assert result == ["a.ipynb", "c.ipynb"] and "was skipped" in notes[0]

    path.write_bytes(b"no archive")
    with pytest.raises(UnreadableError, match=r"cannot be read as a .tar.gz"):
        unpacked(path, into)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_methods_that_unpack_without_a_limit_are_refused(tmp_path, into, method):
    path = tmp_path / "hw.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("bomb.ipynb", bytes(50 * files.MIB), method)
        archive.writestr("good.ipynb", "{}", zipfile.ZIP_DEFLATED)
    tracemalloc.start()
    notes, found = unpacked(path, into)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == ["good.ipynb"] and "Pack it again with the usual method" in notes[0]
    assert peak < 8 * files.MIB


def test_a_table_of_contents_is_read_up_to_a_limit(tmp_path, into, monkeypatch):
    path = zipped(tmp_path / "hw.zip", {f"{number}.ipynb": "{}" for number in range(30)})
    assert len(unpacked(path, into)[1]) == 30
    monkeypatch.setattr(files, "_CONTENTS", 1_000)
    with pytest.raises(UnreadableError, match="cannot be read as a zip archive"):
        unpacked(path, into)
