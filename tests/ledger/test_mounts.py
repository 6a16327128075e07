from pathlib import Path

import pytest
from torch_holdout.errors import LedgerError
from torch_holdout.ledger import Ledger, verify
from torch_holdout.ledger.sqlite import mounts
from torch_holdout.ledger.sqlite.mounts import file_system, is_local, is_shared

TABLE = r"""
21 96 0:19 / /proc rw,nosuid,nodev,noexec,relatime shared:5 - proc proc rw
96 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw,errors=remount-ro
140 96 0:44 / /home rw,relatime shared:70 - nfs4 fs01.example.org:/export/home rw,vers=4.2,hard
141 96 0:45 / /mnt/my\040data rw,relatime shared:71 - cifs //nas/share rw,vers=3.1.1
142 96 0:46 / /mnt/sshfs rw,nosuid,nodev,relatime shared:72 - fuse.sshfs me@host:/ rw,user_id=0
143 140 259:2 /var/scratch /home/me/scratch rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw
144 96 0:47 /projects/x /data/x rw,relatime shared:73 master:3 - nfs nas:/vol/projects rw
145 96 0:50 / /var/lib/docker/overlay2/abc/merged rw,relatime - overlay overlay rw,lowerdir=/a:/b
146 96 0:51 / /gpfs rw,relatime - gpfs gpfs0 rw
147 96 0:52 / /over rw,relatime - ext4 /dev/sdb rw
148 96 0:53 / /over rw,relatime - lustre 10.0.0.1@tcp:/lfs rw
149 96 0:54 / /with\134slash rw - beegfs beegfs_nodev rw
not a line
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/tmp/holdout.db", "ext4"),
        ("/home/me/holdout.db", "nfs4"),
        ("/homes/me/holdout.db", "ext4"),
        ("/home/me/scratch/holdout.db", "ext4"),
        ("/mnt/my data/holdout.db", "cifs"),
        ("/mnt/my/holdout.db", "ext4"),
        ("/mnt/sshfs/a/b/holdout.db", "fuse.sshfs"),
        ("/data/x/holdout.db", "nfs"),
        ("/data/holdout.db", "ext4"),
        ("/var/lib/docker/overlay2/abc/merged/holdout.db", "overlay"),
        ("/gpfs/holdout.db", "gpfs"),
        ("/over/holdout.db", "lustre"),
        ("/with\\slash/holdout.db", "beegfs"),
        ("/proc/holdout.db", "proc"),
    ],
)
def test_the_longest_mount_point_wins(path, kind):
    assert file_system(TABLE, Path(path)) == kind


def test_an_empty_table_knows_nothing():
    assert file_system("", Path("/tmp/holdout.db")) is None


@pytest.mark.parametrize(
    "kind",
    [
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "fuse.sshfs", "9p", "lustre", "gpfs", "beegfs"),
        *("afs", "ceph", "fuse.glusterfs", "fuse.rclone", "fuse.s3fs", "fuse.ceph-fuse", "ocfs2"),
        *("FUSE.SSHFS", "fuse.gcsfuse"),
    ],
)
def test_shared_file_systems_are_known(kind):
    assert is_shared(kind)
    assert not is_local(kind)


@pytest.mark.parametrize(
    "kind",
    [
        *("ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "apfs", "fuseblk", "fuse.ntfs-3g"),
        *("f2fs", "fuse.mergerfs", "ext2", "ext3", "bcachefs", "ntfs3", "exfat", "vfat", "hfsplus"),
        *("fuse.fuse-overlayfs", "aufs", "squashfs", "wslfs"),
    ],
)
def test_local_file_systems_are_let_through(kind):
    assert is_local(kind)
    assert not is_shared(kind)


UNKNOWN = ("virtiofs", "fuse", "fuse.new-cloud", "fuse.grpcfuse", "fakeowner", "ext4x", "proc", "")


@pytest.mark.parametrize("kind", UNKNOWN)
def test_unknown_file_systems_are_not_taken_for_local(kind):
    assert not is_local(kind)


@pytest.mark.parametrize("kind", ["virtiofs", "fuse.new-cloud"])
def test_a_ledger_on_an_unknown_file_system_is_refused(tmp_path, monkeypatch, kind):
    folder = mounted(tmp_path, monkeypatch, kind)
    with pytest.raises(LedgerError, match=rf"{kind}.*not known.*postgresql\+psycopg"):
        register(f"sqlite:///{folder}/holdout.db")
    assert list(folder.iterdir()) == []


def mounted(tmp_path, monkeypatch, kind):
    folder = tmp_path / "mounted here"
    folder.mkdir()
    table = tmp_path / "mountinfo"
    point = str(folder.resolve()).replace(" ", "\\040")
    table.write_text(
        f"1 0 8:1 / / rw - ext4 /dev/sda rw\n2 1 0:9 / {point} rw - {kind} server:/ rw\n"
    )
    monkeypatch.setattr(mounts, "_MOUNTS", table)
    return folder


def register(url):
    registration = {"statistics": {}, "budget": 1}
    return Ledger(url).register("val", registration, budget=1, private=True, fingerprint=None)


def test_a_ledger_on_a_network_file_system_is_refused(tmp_path, monkeypatch):
    folder = mounted(tmp_path, monkeypatch, "nfs4")
    with pytest.raises(LedgerError, match=r"nfs4.*postgresql\+psycopg"):
        register(f"sqlite:///{folder}/holdout.db")
    assert list(folder.iterdir()) == []


def test_also_through_a_link_and_when_it_exists(tmp_path, monkeypatch):
    folder = mounted(tmp_path, monkeypatch, "ext4")
    (tmp_path / "link").symlink_to(folder)
    register(f"sqlite:///{tmp_path}/link/holdout.db")
    table = tmp_path / "mountinfo"
    table.write_text(table.read_text().replace("ext4 server", "fuse.sshfs server"))
    with pytest.raises(LedgerError, match=r"fuse\.sshfs"):
        Ledger(f"sqlite:///{tmp_path}/link/holdout.db").names()


def test_also_to_readers(tmp_path, monkeypatch):
    """SQLite lets a reader write side files, and these are shared memory with the writers."""
    folder = mounted(tmp_path, monkeypatch, "ext4")
    register(f"sqlite:///{folder}/holdout.db")
    table = tmp_path / "mountinfo"
    table.write_text(table.read_text().replace("ext4 server", "nfs4 server"))
    with pytest.raises(LedgerError, match="network file system"):
        Ledger(f"sqlite:///{folder}/holdout.db", reads_only=True).accounts()
    with pytest.raises(LedgerError, match="network file system"):
        verify(f"sqlite:///{folder}/holdout.db")


def test_where_nothing_is_known_nothing_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(mounts, "_MOUNTS", tmp_path / "no such table")
    register(f"sqlite:///{tmp_path}/holdout.db")
