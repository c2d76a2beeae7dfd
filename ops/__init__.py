"""Commands for a stack in an AWS account: they ask the account with the caller's own credentials.

Every one reads the stack's file first and refuses an account that the file does not allow before any other call.
"""
