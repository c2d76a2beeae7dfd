"""One file of cases a rule, named like the rule's own file."""
