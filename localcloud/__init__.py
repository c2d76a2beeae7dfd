"""The embedded default: the whole project on one machine, with no AWS account."""
