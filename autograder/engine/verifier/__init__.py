"""The judge's side of the engine: a confined process that never runs learner code."""
