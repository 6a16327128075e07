"""What ``torch-holdout`` says without a command."""

EXIT_CODES = """\
Exit codes: 0 done; 1 done, and the answer is no (verify found a problem, audit measured more than
claimed, closing was not confirmed); 2 not done, and a sentence on stderr
says why (arguments, files, ledgers); 130 stopped by Ctrl-C. submit also has 3 to 6, for loops:
see submit --help."""

FIRST_STEPS = """\
torch-holdout {version}: keep a validation set honest.

{here}First:
  torch-holdout demo                                          see it work, in under a minute
  torch-holdout plan --size 10000 --queries 200               what your own holdout is worth

With a ledger, the file a guarded run leaves behind:
  torch-holdout status {ledger:<38} budget left, and what the values are worth
  torch-holdout prices {ledger:<38} what the next run would say and be worth
  torch-holdout report {ledger:<38} all of it as a page for people
  torch-holdout verify {ledger:<38} whether anything was edited or lost
  torch-holdout close {ledger:<39} end it for good, and see every value

With labels that somebody else owns:
  torch-holdout board init board.toml                         host a board that answers teams
  torch-holdout serve board.toml                              put it on the network
  torch-holdout submit predictions.npy --board URL            ask one, as a team

About the library itself:
  torch-holdout audit                                         what every mechanism leaks, measured

torch-holdout COMMAND --help explains a command; --install-completion sets up the Tab key.
"""
