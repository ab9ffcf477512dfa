"""What lies between Napkin and the machine: torch's private names, and modules as both routes run them.

Imports ``errors`` and ``spec``, and torch at load. Both ``trace`` and ``measure`` import it, since they run the same modules under the
same torch; neither counts anything here. Start with ``torch_private``, then ``checkpointing``.
"""
