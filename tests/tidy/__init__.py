"""Style as a test: a rule that is not checked here is only advice.

`layout.py` holds the rules as data (who may import whom, the sizes, the names), `tree.py` reads the checkout, and
the other modules hold one function per rule: a checkout in, breaches out. Only the standard library is used, so
`python -m tests.tidy` works before anything is installed. `test_rules.py` plants a breach for every rule: a rule
that cannot fail is a defect.
"""
