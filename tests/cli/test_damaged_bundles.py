"""Bundles that were cut, changed or made by somebody else: a verdict or a clear error, never a wrong name."""

import io
import json
import pathlib
import subprocess
import sys
import tarfile
from collections.abc import Callable

import pytest

from hangscope.cli.main import main

ROOT = pathlib.Path(__file__).parents[2]
RECORDED = sorted((ROOT / "fixtures" / "bundles").glob("*/bundle.tar"))
BUNDLE = next((path for path in RECORDED if "kernel-wait" in str(path)), RECORDED[0] if RECORDED else ROOT)

Capsys = pytest.CaptureFixture[str]
Members = dict[str, bytes]

pytestmark = pytest.mark.skipif(not RECORDED, reason="no recorded bundle in this checkout")


def verdict_of(path: pathlib.Path, capsys: Capsys) -> tuple[dict[str, object] | None, str]:
    """The verdict as JSON, or None after a failure; and standard error."""
    status = main(["analyze", "--json", str(path)])
    streams = capsys.readouterr()
    assert "Traceback" not in streams.err and status in (0, 1)
    if status == 1:
        assert streams.out == "" and str(path) in streams.err and "try: " in streams.err
        return None, streams.err
    return json.loads(streams.out), streams.err


def test_cut_anywhere_it_gives_a_verdict_or_a_clear_error(tmp_path: pathlib.Path, capsys: Capsys) -> None:
    whole = BUNDLE.read_bytes()
    truth, said = verdict_of(BUNDLE, capsys)
    assert truth is not None and truth["initiators"] and said == ""
    cut = tmp_path / "cut.tar"
    offsets = [0, 1, 511, 512, 600, 700, 1024, 2000, *range(4000, len(whole) - 2048, len(whole) // 12)]
    kinds = set()
    for offset in offsets:
        cut.write_bytes(whole[:offset])
        verdict, said = verdict_of(cut, capsys)
        if verdict is None:
            kinds.add("refused")
            continue
        kinds.add(str(verdict["kind"]))
        assert verdict["initiators"] in ([], truth["initiators"]), offset
        assert verdict["kind"] in ("undecided", truth["kind"]), offset  # above all: not "not-stuck"
        assert "was not read to its end" in said and "stream cut" in said
    assert kinds == {"refused", "undecided", str(truth["kind"])}


def test_a_bundle_cut_before_its_first_evidence_is_no_job_that_does_not_hang(
    tmp_path: pathlib.Path, capsys: Capsys
) -> None:
    cut = tmp_path / "cut.tar"
    cut.write_bytes(BUNDLE.read_bytes()[:600])
    for command in ("analyze", "show"):
        assert main([command, str(cut)]) == 1
        err = capsys.readouterr().err
        assert "holds no evidence" in err and "stream cut" in err and "try: " in err


def changed(
    path: pathlib.Path, change: Callable[[Members], None], extra: tuple[tarfile.TarInfo, ...] = ()
) -> None:
    """Writes the recorded bundle with other contents, and with members that nobody should trust."""
    with tarfile.open(BUNDLE) as tar:
        members = {item.name: tar.extractfile(item).read() for item in tar}  # type: ignore[union-attr]  # all are regular files
    change(members)
    with tarfile.open(path, "w") as tar:
        for name, data in members.items():
            item = tarfile.TarInfo(name)
            item.size = len(data)
            tar.addfile(item, io.BytesIO(data))
        for item in extra:
            tar.addfile(item, io.BytesIO(b"x" * item.size))


def with_manifest(**fields: object) -> Callable[[Members], None]:
    def change(members: Members) -> None:
        manifest = json.loads(members["manifest.json"])
        members["manifest.json"] = json.dumps({**manifest, **fields}).encode()

    return change


@pytest.mark.parametrize(
    ("form", "text", "advice"),
    [
        ("hangscope-bundle/2", "newer format", "pip install --upgrade"),
        ("other/1", "no hangscope bundle", "capture"),
    ],
)
def test_another_format(form: str, text: str, advice: str, tmp_path: pathlib.Path, capsys: Capsys) -> None:
    changed(tmp_path / "x.tar", with_manifest(format=form))
    assert main(["analyze", str(tmp_path / "x.tar")]) == 1
    streams = capsys.readouterr()
    assert (
        streams.out == ""
        and text in streams.err
        and f"try: {advice}" in streams.err.replace("hangscope capture", "capture")
    )


def stranger(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    item = tarfile.TarInfo(name)
    item.type, item.linkname = kind, link
    item.size = 3 if kind == tarfile.REGTYPE else 0
    return item


def test_hostile_members_and_texts(
    tmp_path: pathlib.Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    reason = {"name": "gone\x1b[2J", "status": "absent", "reason": "\x1b]0;title\x07 \u202e"}
    manifest = json.loads(tarfile.open(BUNDLE).extractfile("manifest.json").read())  # type: ignore[union-attr]  # a regular file
    strangers = (
        stranger("../../outside"),
        stranger("/outside"),
        stranger("shards/\x1b[31mx.tar.gz"),
        stranger("link", tarfile.SYMTYPE, "/etc/passwd"),
        stranger("shards/device.tar.gz", tarfile.CHRTYPE),
    )
    fields = {"job": "\x1b[31mevil\njob", "nodes": [*manifest["nodes"], reason]}
    changed(tmp_path / "x.tar", with_manifest(**fields), strangers)
    truth, _ = verdict_of(BUNDLE, capsys)
    assert main(["analyze", str(tmp_path / "x.tar")]) == 0
    streams = capsys.readouterr()
    assert truth is not None and f"rank {truth['initiators'][0]} " in streams.out.splitlines()[0]  # type: ignore[index]  # a list
    for text in (streams.out, streams.err):
        assert not set("\x1b\x07\u202e") & set(text)
    assert "a symbolic link" in streams.err and "a character device" in streams.err
    assert main(["show", str(tmp_path / "x.tar")]) == 0
    assert not set("\x1b\x07\u202e") & set(capsys.readouterr().out)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["here", "x.tar"]


def test_output_to_a_full_disk_is_told(capsys: Capsys) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "hangscope", "analyze", str(BUNDLE)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            timeout=60,
        )
    assert done.returncode == 1
    assert (
        "cannot write the output: No space left on device" in done.stderr and "Traceback" not in done.stderr
    )
