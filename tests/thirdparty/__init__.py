"""Modules of other people's packages, derived and measured: ``make test-thirdparty``, in an environment of its own."""
