"""Files, folders and archives as documents: all that is there, nothing from elsewhere, whatever they hold."""

import bz2
import gzip
import io
import lzma
import os
import pathlib
import tarfile
import zipfile

import pytest
import zstandard

from hangscope.analyzers.readers.interface import Document
from hangscope.loose import FoundBundle, Limits, Unread, Window, opened, opened_stream

ROOT = pathlib.Path(__file__).parents[2]
BUNDLE = ROOT / "fixtures" / "bundles" / "01c-kernel-wait" / "bundle.tar"


def documents(*paths: object, **options: object) -> dict[str, bytes]:
    found = opened([str(path) for path in paths], **options)  # type: ignore[arg-type]
    return {item.path: item.data for item in found if isinstance(item, Document)}


def unread(*paths: object, **options: object) -> dict[str, str]:
    found = opened([str(path) for path in paths], **options)  # type: ignore[arg-type]
    return {item.path: item.why for item in found if isinstance(item, Unread)}


def tar_of(members: dict[str, bytes], form: int = tarfile.PAX_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as tar:
        for name, data in members.items():
            item = tarfile.TarInfo(name)
            item.size, item.mtime = len(data), 1_740_000_000
            tar.addfile(item, io.BytesIO(data))
    return buffer.getvalue()


def zip_of(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def test_a_folder_gives_its_files_in_order_and_nothing_else(tmp_path: pathlib.Path) -> None:
    outside = tmp_path / "outside.log"
    outside.write_bytes(b"secret\n")
    folder = tmp_path / "logs"
    for name in ("b/rank_1.log", "a.log", "b/rank_0.log", ".git/config"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(name.encode())
    (folder / "link.log").symlink_to(outside)
    os.mkfifo(folder / "pipe")
    found = documents(folder)
    assert [os.path.relpath(path, folder) for path in found] == ["a.log", "b/rank_0.log", "b/rank_1.log"]
    assert "link" in unread(folder)[str(folder / "link.log")]
    assert documents(folder / "link.log") == {str(folder / "link.log"): b"secret\n"}
    assert list(documents(folder, folder / "a.log")) == list(found)
    assert "more than 2 files" in unread(folder, limits=Limits(files=2))[str(folder)]


def test_the_name_of_a_file_is_its_origin_and_its_time_comes_along(tmp_path: pathlib.Path) -> None:
    (tmp_path / "rank_3.log").write_bytes(b"x\n")
    os.utime(tmp_path / "rank_3.log", (0, 1_740_000_000))
    (item,) = opened([str(tmp_path)])
    assert isinstance(item, Document)
    assert (item.origin.rank, item.origin.source, item.mtime) == (3, "name", 1_740_000_000.0)


@pytest.mark.parametrize("path", ["missing.log", "a\0b", "/dev/null"])
def test_what_cannot_be_opened_is_told(path: str) -> None:
    assert list(unread(path)) == [path] and not documents(path)


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_tars(form: int, tmp_path: pathlib.Path) -> None:
    long = "/".join(["folder-of-a-job"] * 9) + "/rank_1.log"
    members = {"./rank_0.log": b"zero\n", long: b"one\n" * 300, "empty.log": b""}
    (tmp_path / "x.tar").write_bytes(tar_of(members, form))
    assert documents(tmp_path / "x.tar") == {
        f"{tmp_path}/x.tar!rank_0.log": b"zero\n",
        f"{tmp_path}/x.tar!{long}": b"one\n" * 300,
        f"{tmp_path}/x.tar!empty.log": b"",
    }
    first = next(opened([str(tmp_path / "x.tar")]))
    assert isinstance(first, Document) and (first.mtime, first.origin.rank) == (1_740_000_000.0, 0)


PACKERS = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstandard.ZstdCompressor().compress,
}


@pytest.mark.parametrize("ending", PACKERS)
def test_compressed_files_and_tars(ending: str, tmp_path: pathlib.Path) -> None:
    pack = PACKERS[ending]
    (tmp_path / f"rank_2.log.{ending}").write_bytes(pack(b"two\n") + pack(b"more\n"))
    (tmp_path / f"t.{ending}").write_bytes(pack(tar_of({"a.log": b"a\n"})))
    assert documents(tmp_path) == {
        f"{tmp_path}/rank_2.log.{ending}": b"two\nmore\n",
        f"{tmp_path}/t.{ending}!a.log": b"a\n",
    }
    cut = tmp_path / "cut"
    whole = pack(os.urandom(1 << 18).hex().encode())
    cut.write_bytes(whole[: len(whole) // 2])
    assert "cut" in unread(cut)[str(cut)]
    least = 0 if ending == "bz2" else 1 << 16  # bzip2 gives blocks of 900 kB, or nothing
    assert len(documents(cut).get(str(cut), b"")) >= least


def test_an_archive_in_an_archive_and_no_deeper(tmp_path: pathlib.Path) -> None:
    inner = zip_of({"rank_0.log": b"x\n", "deep.tar": tar_of({"y.log": b"y\n"})})
    (tmp_path / "x.zip").write_bytes(zip_of({"inner.zip": inner, "a.log.gz": gzip.compress(b"a\n")}))
    path = tmp_path / "x.zip"
    assert documents(path) == {f"{path}!inner.zip!rank_0.log": b"x\n", f"{path}!a.log.gz": b"a\n"}
    assert unread(path) == {
        f"{path}!inner.zip!deep.tar": "an archive in an archive in an archive; unpack one of them"
    }


def test_members_with_names_of_other_places_are_only_read(tmp_path: pathlib.Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    members = {"../../outside.log": b"1\n", "/etc/outside.log": b"2\n"}
    (here / "x.tar").write_bytes(tar_of(members))
    (here / "x.zip").write_bytes(zip_of(members))
    assert sorted(documents(here).values()) == [b"1\n", b"1\n", b"2\n", b"2\n"]
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["here", "x.tar", "x.zip"]


def test_bombs_are_refused_and_the_rest_is_read(tmp_path: pathlib.Path) -> None:
    zeros = bytes(8 << 20)
    (tmp_path / "a.gz").write_bytes(gzip.compress(zeros))
    (tmp_path / "b.zip").write_bytes(zip_of({"bomb.log": zeros, "rank_0.log": b"x\n"}))
    (tmp_path / "c.log").write_bytes(b"c\n")
    limits = Limits(ratio=100, ratio_from=1 << 20)
    assert set(documents(tmp_path, limits=limits)) == {
        f"{tmp_path}/b.zip!rank_0.log",
        f"{tmp_path}/c.log",
    }
    assert set(unread(tmp_path, limits=limits)) == {f"{tmp_path}/a.gz", f"{tmp_path}/b.zip!bomb.log"}


def test_damaged_archives_give_what_stands_before_the_damage(tmp_path: pathlib.Path) -> None:
    tar = tar_of({"a.log": b"a\n" * 600, "b.log": b"b\n" * 600}, tarfile.USTAR_FORMAT)
    for cut in (700, 1500, 2000, 2600, 3000):
        (tmp_path / "x.tar").write_bytes(tar[:cut])
        assert next(iter(documents(tmp_path).values())).startswith(b"a\n")
    whole = zip_of({"a.log": b"abc\n" * 600})
    for place in range(0, len(whole), 3):
        (tmp_path / "x.tar").write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        list(opened([str(tmp_path)]))


def test_limits_of_depth_and_size(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c" / "x.log").write_bytes(b"x\n")
    assert "folders deep" in unread(tmp_path, limits=Limits(depth=2))[f"{tmp_path}/a/b/c"]
    inner = zip_of({"x.log": os.urandom(4000)})
    cases = {
        "big.tar": (tar_of({"inner.zip": inner}), Limits(nested=1000), "unpack it"),
        "packed.gz": (gzip.compress(gzip.compress(gzip.compress(b"x"))), Limits(layers=2), "too many times"),
        "many.tar": (tar_of({"a": b"a", "b": b"b"}), Limits(files=1), "more than 1 members"),
        "many.zip": (zip_of({"a": b"a", "b": b"b"}), Limits(files=1), "more than 1 members"),
        "binary": (bytes(range(256)) * 20, Limits(binary=1000), "it is no text"),
        "bundle.zip": (zip_of({"b.tar": BUNDLE.read_bytes()}), Limits(binary=1000), "a bundle of that size"),
    }
    for name, (data, limits, why) in cases.items():
        (tmp_path / name).write_bytes(data)
        assert any(why in said for said in unread(tmp_path / name, limits=limits).values()), name


def test_the_time_of_a_zipped_file_is_known_only_with_its_zone(tmp_path: pathlib.Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("a.log", "a")
        item = zipfile.ZipInfo("b.log")
        item.extra = b"UT\x05\x00\x03" + (1_740_000_000).to_bytes(4, "little")
        archive.writestr(item, "b")
    found = [item.mtime for item in opened([str(tmp_path)]) if isinstance(item, Document)]
    assert found == [None, 1_740_000_000.0]


def test_saved_tensors_are_no_archive_of_logs(tmp_path: pathlib.Path) -> None:
    (tmp_path / "m.pt").write_bytes(zip_of({"archive/data.pkl": b"x", "archive/data/0": bytes(100)}))
    assert "saved tensors" in unread(tmp_path)[f"{tmp_path}/m.pt"] and not documents(tmp_path)


def test_bundles_are_handed_on(tmp_path: pathlib.Path) -> None:
    data = BUNDLE.read_bytes()
    (tmp_path / "x.zip").write_bytes(zip_of({"bundle.tar": data}))
    found = list(opened([str(BUNDLE), str(tmp_path)]))
    assert found[0] == FoundBundle(str(BUNDLE))
    assert found[1] == FoundBundle(f"{tmp_path}/x.zip!bundle.tar", data)
    with tarfile.open(BUNDLE) as tar:
        tar.extractall(tmp_path / "folder", filter="data")
    assert list(opened([str(tmp_path / "folder")])) == [FoundBundle(str(tmp_path / "folder"))]
    assert list(opened_stream(io.BytesIO(data), "standard input")) == [FoundBundle("standard input", data)]


def test_of_a_huge_log_the_edges_and_what_matters(tmp_path: pathlib.Path) -> None:
    log = tmp_path / "huge.log"
    filler = b"".join(b"step %07d loss 1.25\n" % number for number in range(400_000))
    place = filler.find(b"step 0200000")
    matter = b"Process 41: python train.py\nPython v3.11.9 (/usr/bin/python3.11)\n"
    log.write_bytes(filler[:place] + matter + filler[place:])
    window = Window(whole=1 << 20, edge=1 << 18, matched=1 << 20, after=5)
    parts = [item for item in opened([str(log)], window) if isinstance(item, Document)]
    lines = log.read_bytes().split(b"\n")
    for part in parts:
        rows = part.data.split(b"\n")[:-1]
        assert lines[part.first_line - 1 :][: len(rows)] == rows
    assert parts[0].first_line == 1 and parts[-1].data.endswith(b"step 0399999 loss 1.25\n")
    assert sum(len(part.data) for part in parts) < 8 << 20
