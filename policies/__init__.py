"""The policy pack: `rules/` judges, `__main__.py` serves the rules to the engine."""
