"""Everything a person reads: one document model, written as Markdown, HTML, JSON and terminal text. Torch-free."""
