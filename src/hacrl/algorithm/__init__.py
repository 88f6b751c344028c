"""The mathematics of HACPO: small pure functions over tensors."""
