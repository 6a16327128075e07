"""A number with its noun."""


def counted(number: int, noun: str) -> str:
    """Write how many there are.

    Example:
        >>> counted(1, "release"), counted(1200, "guess"), counted(0, "query")
        ('1 release', '1,200 guesses', '0 queries')
    """
    if noun.endswith("y"):
        plural = f"{noun[:-1]}ies"
    else:
        plural = noun + ("es" if noun.endswith(("s", "ch")) else "s")
    return f"{number:,} {noun if number == 1 else plural}"
