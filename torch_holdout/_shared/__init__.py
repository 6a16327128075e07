"""Small tools of every room: checks, text, numeric search, ranks. No concept has its home here."""
