"""`make doctor STACK=x`: what a stack needs of its account, asked before anything is created.

Each check asks one thing and answers in findings; the verdict functions are pure. What could not be asked is said so
and is neither good nor bad.
"""
