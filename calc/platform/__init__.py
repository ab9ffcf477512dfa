"""The border of Napkin: files of users, arguments of callers, torch's private names, and modules as both routes run them.

Imports ``errors`` and ``spec``; ``torch_private`` and ``checkpointing`` import torch at load. Both ``trace`` and ``measure`` import it,
since they run the same modules under the same torch; nothing is counted here. Start with ``files``.
"""
