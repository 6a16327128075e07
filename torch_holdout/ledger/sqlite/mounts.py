"""Where a path is mounted, to keep SQLite off what machines share and off files with two names."""

import re
from collections.abc import Iterator
from pathlib import Path

_MOUNTS = Path("/proc/self/mountinfo")
_SHARED = re.compile(
    "9p|acfs|afp|afpfs|afs|auristorfs|cifs|coda|cvfs|drvfs|fhgfs|gfs|gfs2|glusterfs|gpfs|mmfs|"
    "ncpfs|ocfs2|orangefs|panfs|prl_fs|pvfs2|vboxsf|vmhgfs|webdav|wekafs|"
    "(nfs|smb|ceph|lustre|beegfs).*|"
    "fuse[.](sshfs|gluster|ceph|s3|rclone|gcsfuse|goofys|mountpoint|juice|blobfuse|davfs|"
    "curlftpfs|smbnetfs|moose|lizard|seaweed|alluxio|hdfs|vmhgfs|beegfs|objectivefs|cvmfs|lustre|"
    "dbfs|onedata).*",
    re.DOTALL,
)
# A type that is not here is refused: nobody knows whether its locks hold, or who else has it.
_LOCAL = re.compile(
    "ext[234]|xfs|btrfs|zfs|f2fs|bcachefs|jfs|reiserfs|reiser4|nilfs2|ufs|ubifs|jffs2|"
    "tmpfs|ramfs|rootfs|devtmpfs|overlay|overlayfs|aufs|shiftfs|simfs|lxfs|wslfs|ecryptfs|"
    "apfs|hfs|hfsplus|ntfs|ntfs3|vfat|msdos|exfat|squashfs|erofs|iso9660|udf|"
    "fuseblk|fuse[.](ntfs|ntfs-3g|exfat|exfat-fuse|fuse-overlayfs|mergerfs)"
)


def unsafe_file_system(path: Path) -> str | None:
    """Name the file system that a path is on unless it is known to be local.

    Linux says it in a table. Elsewhere nothing is known, and nothing is refused.
    """
    try:
        kind = file_system(_mount_table(), path.resolve())
    except (OSError, RuntimeError):
        return None
    return None if kind is None or is_local(kind) else kind


def is_mount_point(path: Path) -> bool:
    """Whether a resolved path is itself mounted: a file, by a bind mount into a container."""
    try:
        table = _mount_table()
    except OSError:
        return False
    return any(point == str(path) for point, _ in _mounts(table) if path.name in point)


def file_system(table: str, path: Path) -> str | None:
    """Return the type of the mount that a resolved path is on, from the text of mountinfo.

    The longest mount point wins, and of two on the same point the later, which hides the other.

    Example:
        >>> file_system("27 1 254:0 / / rw - ext4 /dev/vda rw", Path("/home"))
        'ext4'
    """
    kind, longest = None, -1
    for mounted, of_kind in _mounts(table):
        point = Path(mounted)
        if path.is_relative_to(point) and len(point.parts) >= longest:
            kind, longest = of_kind, len(point.parts)
    return kind


def is_local(kind: str) -> bool:
    """Whether a file system of this type is known to belong to one machine.

    Example:
        >>> is_local("ext4"), is_local("overlay"), is_local("virtiofs"), is_local("fuse.unheard-of")
        (True, True, False, False)
    """
    return _LOCAL.fullmatch(kind.lower()) is not None


def is_shared(kind: str) -> bool:
    """Whether a file system of this type is known to be shared by machines.

    Example:
        >>> is_shared("nfs4"), is_shared("fuse.sshfs"), is_shared("ext4")
        (True, True, False)
    """
    return _SHARED.fullmatch(kind.lower()) is not None


def _mount_table() -> str:
    return _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")


def _mounts(table: str) -> Iterator[tuple[str, str]]:
    """Yield the mount points and their types."""
    for line in table.split("\n"):
        before, separator, after = line.partition(" - ")
        fields = before.split(" ", 5)
        if separator and len(fields) >= 5:
            point = _unescaped(fields[4]) if "\\" in fields[4] else fields[4]
            yield point, after.split(" ", 1)[0]


def _unescaped(text: str) -> str:
    """Read space, tab, newline and backslash, which the kernel writes as three octal digits."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
