"""What a node boots with: user data, the node document and the trainer release."""
