"""Pages whose text layer lies, each in one way, and honest ones; of all of them it is known what a person sees."""

from tests.support import hidden_letters, honest_pages, lying_fonts, lying_layers, lying_letters, lying_places
from tests.support.set_pages import HONEST, LYING, SetPage, as_set_page, set_page

__all__ = ["HONEST", "LYING", "SetPage", "as_set_page", "set_page"]

_MAKERS = (honest_pages, lying_fonts, hidden_letters, lying_letters, lying_layers, lying_places)
"""Their pages are in the lists once they are imported."""
