"""What a run was, as one page that opens anywhere: read from its own documents, drawn without any library."""
