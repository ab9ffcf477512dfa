"""Models with a spec: the lecture's, a reference GPT-2, and any causal language model of transformers by its config.

They are ordinary modules without costs; no rule knows any of them. Imports torch, the vocabulary and ``platform``. Start with
``catalogue``, then ``load``; ``gpt2`` is a model to read first.
"""
