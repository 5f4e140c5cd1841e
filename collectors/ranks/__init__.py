"""Which processes are the ranks of which job: discovery, from what cannot block to what is proven."""
