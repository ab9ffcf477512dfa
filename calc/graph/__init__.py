"""The traced step as data: operators, storages, events, and the guards under which it holds. JSON in and out.

Imports the vocabulary, ``symbolic`` and ``platform``; no torch. Start with ``step``, then ``guards`` (sizes at which a step holds) and
``trip_counts`` (how many iterations of each loop a trace has).
"""
