"""The real Pulumi engine, run hermetically, with stand-ins for its plugins where a mode asks for them."""
