"""Training of recursive models on trees: ``python -m jaxrec.train``."""

from jaxrec.train._errors import TrainError as TrainError
from jaxrec.train._loop import train as train
from jaxrec.train._settings import Settings as Settings
from jaxrec.train._settings import parse_settings as parse_settings
