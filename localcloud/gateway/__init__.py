"""The end of the AWS emulation that nodes talk to: it passes everything on, and injects faults of S3 by rules."""
