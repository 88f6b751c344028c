"""What a recipe resolves to and what looks wrong with it, found without training."""

from hacrl.analysis.doctor.advice import warnings_for
from hacrl.analysis.doctor.examination import AgentPlan, Diagnosis, examine

__all__ = ["AgentPlan", "Diagnosis", "examine", "warnings_for"]
