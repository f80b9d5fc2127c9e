"""The page in a notebook: Jupyter, VS Code, Colab and marimo, by anywidget."""

from functools import cache
from typing import Any

from overt.attention import check
from overt.drawing.html import read
from overt.errors import MissingExtra
from overt.lens.recorded_calls import RecordedCalls
from overt.lens.viewer import page


def widget(calls: RecordedCalls, *, height: int = 720, **options: Any) -> Any:
    """The page of these calls as a widget, `height` pixels high; `options` are the options of `page`.

    The widget's `page` is the HTML that `page` writes, in its own frame: a notebook saved with its widgets also holds the recording
    and shows it without Python. Setting `page` shows another page. Raises MissingExtra without anywidget, and the errors of `page`.

    >>> import torch, overt
    >>> layer = overt.layers.MultiHeadAttention(8, heads=2)
    >>> with overt.lens.record(layer) as recording:
    ...     _ = layer(torch.randn(1, 5, 8))
    >>> widget(recording, height=400).height
    400
    """
    check.whole_number("height", height)
    return _kind()(page=page(calls, **options), height=height, title=options.get("title") or calls.model)


@cache
def _kind() -> Any:
    """The widget's class, defined only if anywidget is installed."""
    try:
        import anywidget
        import traitlets
    except ImportError as error:
        raise MissingExtra("recording.widget()", needs="anywidget", extra="widget") from error

    class Viewer(anywidget.AnyWidget):
        """A recording's page in a frame."""

        _esm = read("lens/viewer/web/embed/widget.js")
        page = traitlets.Unicode().tag(sync=True)
        title = traitlets.Unicode().tag(sync=True)
        height = traitlets.Int().tag(sync=True)

    return Viewer
