"""The errors of the trainer."""


class TrainError(ValueError):
    """Training cannot start or go on; the message says why and what to change."""
