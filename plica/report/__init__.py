"""report: what compiling a model did, as data (`Study`) and as one page of HTML."""

from plica.report.page import page
from plica.report.study import LaunchRow, StudiedModel, Study, compiled, examine

__all__ = ["LaunchRow", "StudiedModel", "Study", "compiled", "examine", "page"]
