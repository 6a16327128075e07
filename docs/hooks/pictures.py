"""Show a picture's dark twin, ``name-dark.png``, to readers of dark pages."""

import re
from pathlib import Path

IMAGE = re.compile(r'<img\b[^>]*\bsrc="(?P<stem>[^"#]+)(?P<suffix>\.png)"[^>]*>')


def on_page_content(html, page, files, **_):
    """Put the dark twin beside each picture that has one; the theme hides one of them."""
    folder = Path(page.file.abs_dest_path).parent
    made = {Path(file.abs_dest_path).resolve() for file in files}

    def both(found):
        stem, suffix = found["stem"], found["suffix"]
        if (folder / f"{stem}-dark{suffix}").resolve() not in made:
            return found[0]
        light = found[0].replace(f"{stem}{suffix}", f"{stem}{suffix}#only-light")
        return light + found[0].replace(f"{stem}{suffix}", f"{stem}-dark{suffix}#only-dark")

    return IMAGE.sub(both, html)
