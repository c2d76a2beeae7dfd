"""The real Pulumi engine, run hermetically: stand-ins for its plugins where a mode asks for them, and only there."""
