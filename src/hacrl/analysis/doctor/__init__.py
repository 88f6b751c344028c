"""Check a recipe without training: what it resolves to, and warnings."""

from hacrl.analysis.doctor.advice import warnings_for
from hacrl.analysis.doctor.examination import AgentPlan, Diagnosis, examine

__all__ = ["AgentPlan", "Diagnosis", "examine", "warnings_for"]
