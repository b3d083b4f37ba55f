"""Training of recursive models on trees: ``python -m jaxrec.train``."""

try:
    from jaxrec.train._errors import TrainError as TrainError
    from jaxrec.train._loop import train as train
    from jaxrec.train._settings import Settings as Settings
    from jaxrec.train._settings import parse_settings as parse_settings
except ModuleNotFoundError as error:
    if error.name is None or error.name.partition(".")[0] == "jaxrec":
        raise
    raise ModuleNotFoundError(
        f"jaxrec.train needs {error.name}, which is not installed: pip install 'jaxrec[train]'",
        name=error.name,
    ) from error
