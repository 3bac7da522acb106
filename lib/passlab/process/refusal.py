"""The codec's exception, in a file without imports: the process that builds modules does without torch."""


class Refused(ValueError):
    """A value cannot travel. The message names it and its place, and may be shown to the learner."""
