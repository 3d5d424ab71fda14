"""What is made from a version: row copies, derived copies, exports."""
