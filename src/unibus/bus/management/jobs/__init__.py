"""Work on many messages as jobs that go on without their caller."""
