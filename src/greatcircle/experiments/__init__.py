"""The paper's experiments, run as the paper runs them and shown beside its numbers."""
