"""Code shared by both TVMs: 0.17, which has Relay, and 0.27, which has Relax. A process holds one of them."""
