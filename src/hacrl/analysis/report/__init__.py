"""A run as one self-contained web page, finished (`hacrl report`) or live (`hacrl watch`)."""

from hacrl.analysis.report.data import report_data
from hacrl.analysis.report.page import render, write_report

__all__ = ["render", "report_data", "write_report"]
