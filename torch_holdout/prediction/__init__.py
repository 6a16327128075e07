"""Private prediction: members on disjoint parts of sensitive records, one answer per query."""
