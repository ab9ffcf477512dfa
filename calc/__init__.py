"""Resource accounting of PyTorch training steps."""
