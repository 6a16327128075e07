"""A terminal of a given width: runs a command on a real pty and says what was on the screen."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios

_CONTROL = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])|([\r\n])")


def screens(command, *, columns, **options):
    """Run a command on a pty; return what it showed before each time it went back to redraw."""
    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
    process = subprocess.Popen(command, stdin=side, stdout=side, stderr=side, **options)
    os.close(side)
    content = b""
    while part := _read(main):
        content += part
    os.close(main)
    assert process.wait() == 0, content.decode(errors="replace")[-3000:]
    return list(drawn(content.decode(errors="replace"), columns))


def _read(descriptor):
    try:
        return os.read(descriptor, 65536)
    except OSError:  # Linux says so when the other side is closed
        return b""


def drawn(text, columns):
    """Follow the few controls that progress bars use; longer lines are cut, as tqdm expects."""
    lines, row, column, place = [""], 0, 0, 0
    for found in _CONTROL.finditer(text + "\r"):
        plain = text[place : found.start()]
        place = found.end()
        before = lines[row].ljust(column)
        lines[row] = (before[:column] + plain + before[column + len(plain) :])[:columns]
        column += len(plain)
        number, command, simple = found.groups()
        if simple == "\n":
            row, column = row + 1, 0
            lines += [""] * (row + 1 - len(lines))
        elif simple == "\r":
            yield "\n".join(lines)
            column = 0
        elif command == "A":
            yield "\n".join(lines)
            row = max(0, row - int(number or 1))
        elif command == "K":
            lines[row] = "" if number == "2" else lines[row][:column]
