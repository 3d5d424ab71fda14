"""Files of torch itself, in and out: `torch.save` and directories of DCP."""
