"""Tables of publications, cell by cell beside the exact counts of a model: what each cell leaves out, adds or counts differently."""
