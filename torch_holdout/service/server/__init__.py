"""The server's side: a board's configuration, labels, teams and routes; nothing a team runs."""
