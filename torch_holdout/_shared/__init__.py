"""Small tools that every room uses: checks, text, numeric search, ranks."""
