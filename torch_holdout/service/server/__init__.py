"""The server's side: a board's configuration, its parts of the data, its teams and its answers."""
