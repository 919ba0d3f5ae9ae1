"""A report as one HTML file: nothing is fetched, no script runs, and all text is escaped by the template."""

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from reports.document import document
from reports.model import Report
from reports.plots import plot_groups

_FOLDED_FROM = 10  # a longer list is folded, so that the numbers stay near the doubts
_MARKER_SHAPES = {
    "o": '<circle cx="20" cy="6" r="3.5"/>',
    "s": '<rect x="16.5" y="2.5" width="7" height="7"/>',
    "^": '<path d="M20 1.5 24 9.5H16Z"/>',
    "D": '<path d="M20 1.5 24.5 6 20 10.5 15.5 6Z"/>',
    "v": '<path d="M20 10.5 24 2.5H16Z"/>',
    "P": '<path d="M18.5 2h3v2.5H24v3h-2.5V10h-3V7.5H16v-3h2.5Z"/>',
    "X": '<path d="m16 3.5 1.5-1.5L20 4.5 22.5 2 24 3.5 21.5 6 24 8.5 22.5 10 20 7.5 17.5 10 16 8.5 18.5 6Z"/>',
}


def to_html(report: Report) -> str:
    """The report as a whole page."""
    environment = Environment(
        loader=PackageLoader("reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = environment.get_template("report.html").render(
        document=document(report),
        groups=plot_groups(report.matrices),
        folded_from=_FOLDED_FROM,
        kind=lambda block: type(block).__name__,
        drawing=lambda plot: Markup(plot.svg),  # noqa: S704 - its only text is our own labels
        marker=lambda series: Markup(_MARKER_SHAPES[series.marker]),  # noqa: S704 - constants of this module
    )
    return page + "\n"
