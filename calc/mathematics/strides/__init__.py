"""Tensor layouts: shape, strides and offset in a storage; which operations return views and which allocate, and why."""
