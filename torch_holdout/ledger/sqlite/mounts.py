"""Which file system a path is on, to keep SQLite off those that machines share."""

import re
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


def network_file_system(path: Path) -> str | None:
    """Name the network file system that a path is on; None for a local or an unknown one.

    Linux says it in a table. Elsewhere nothing is known, and nothing is refused.
    """
    try:
        table = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
        real = path.resolve()
    except (OSError, RuntimeError):
        return None
    kind = file_system(table, real)
    return kind if kind is not None and is_shared(kind) else None


def file_system(table: str, path: Path) -> str | None:
    """Return the type of the mount that a resolved path is on, from the text of mountinfo.

    The longest mount point wins, and of two on the same point the later, which hides the other.

    Example:
        >>> file_system("27 1 254:0 / / rw - ext4 /dev/vda rw", Path("/home"))
        'ext4'
    """
    kind, longest = None, -1
    for line in table.split("\n"):
        before, separator, after = line.partition(" - ")
        fields, kinds = before.split(" "), after.split(" ")
        if not separator or len(fields) < 5:
            continue
        point = Path(_unescaped(fields[4]))
        if path.is_relative_to(point) and len(point.parts) >= longest:
            kind, longest = kinds[0], len(point.parts)
    return kind


def is_shared(kind: str) -> bool:
    """Whether several machines may have a file system of this type.

    Example:
        >>> is_shared("nfs4"), is_shared("fuse.sshfs"), is_shared("ext4"), is_shared("fuseblk")
        (True, True, False, False)
    """
    return _SHARED.fullmatch(kind.lower()) is not None


def _unescaped(text: str) -> str:
    """The kernel writes space, tab, newline and backslash as three octal digits."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
