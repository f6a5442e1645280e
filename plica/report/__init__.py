"""report: what compiling a model did, as data (`Study`) and as one page of HTML to explore."""

from plica.report.model_view import model_view
from plica.report.page import page
from plica.report.study import LaunchRow, StudiedModel, Study, compiled, examine

__all__ = ["LaunchRow", "StudiedModel", "Study", "compiled", "examine", "model_view", "page"]
