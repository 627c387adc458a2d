"""The report: one self-contained HTML page about a model and the patients that it was tried on."""

from dcsurv.report.explained import write_explanation
from dcsurv.report.write import Report, write_report

__all__ = ["Report", "write_explanation", "write_report"]
