"""Models with a spec: the lecture's, a reference GPT-2, and any causal language model of transformers by its config.

They are ordinary modules. None of them holds a cost, and nothing that costs them knows them.
"""
