"""What a command does between its words and its output: a request (a model, sizes, options) becomes a derivation, a check, a page, files.

Imports ``writers``, ``page`` and ``figures``. Start with ``request``, then ``job``; ``compared`` and ``roofline`` are the jobs
of ``napkin compare`` and ``napkin roofline``.
"""
