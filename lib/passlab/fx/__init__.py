"""torch.fx: reading, judging, comparing, measuring, generating and shrinking its graphs."""
