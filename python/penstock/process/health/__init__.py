"""Whether hosts are fit to train: what each says of itself, what pairs of them measure, and who of them is to blame."""
