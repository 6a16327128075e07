"""Small tools that every room uses: checks, text, search, ranks. No concept of its own."""
