"""Explanations and statements for people: terminal tables and self-contained HTML pages."""

from counterveil.report.html import Curve, VeilScore, demo_page, explanations_page
from counterveil.report.terminal import explanation_table, score_table, statement_panel

__all__ = [
    "Curve",
    "VeilScore",
    "demo_page",
    "explanation_table",
    "explanations_page",
    "score_table",
    "statement_panel",
]
