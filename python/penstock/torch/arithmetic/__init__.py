"""Arithmetic: what a model computes, traced on fake tensors; and how fast this device multiplies."""
