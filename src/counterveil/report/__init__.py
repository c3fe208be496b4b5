"""Explanations and statements for people: terminal tables and self-contained HTML pages."""

from counterveil.report.page import Curve, Measurement, demo_page, explanations_page
from counterveil.report.terminal import explanation_table, statement_panel

__all__ = [
    "Curve",
    "Measurement",
    "demo_page",
    "explanation_table",
    "explanations_page",
    "statement_panel",
]
