"""Napkin's boundary: users' files, callers' arguments, torch's private names, and the loaded modules that may hold a model's code.

Imports ``errors``; ``torch_private`` imports torch at load. Both ``trace`` and ``measure`` import it, since they run the same modules
under the same torch. Nothing is counted here. Start with ``files``.
"""
