"""Servers that misbehave on purpose, and real ones to put behind them."""
