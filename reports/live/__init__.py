"""Live documents: they keep their numbers in their own text, each with an invisible comment that says what it must equal."""
