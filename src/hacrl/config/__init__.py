"""The recipe of a run: typed, unknown keys refused with the nearest valid name, defaults as in the paper."""

from hacrl.config.differences import recipe_differences
from hacrl.config.method import (
    GrpoSection,
    GspoSection,
    HacpoSection,
    make_method,
)
from hacrl.config.method_section import MethodSection
from hacrl.config.overrides import load_recipe, parse_recipe
from hacrl.config.problems import RecipeError
from hacrl.config.recipe import Recipe
from hacrl.config.sections import (
    AgentRecipe,
    AuditSection,
    CapabilitySection,
    CheckpointSection,
    EvaluationSection,
    ExchangeSection,
    LoggingSection,
    LoraSection,
    OptimiserSection,
    ResourcesSection,
    RewardFunctionSection,
    RewardSection,
    RuntimeSection,
    SamplingSection,
    TaskSection,
    UpdatesSection,
)

__all__ = [
    "AgentRecipe",
    "AuditSection",
    "CapabilitySection",
    "CheckpointSection",
    "EvaluationSection",
    "ExchangeSection",
    "GrpoSection",
    "GspoSection",
    "HacpoSection",
    "LoggingSection",
    "LoraSection",
    "MethodSection",
    "OptimiserSection",
    "Recipe",
    "RecipeError",
    "ResourcesSection",
    "RewardFunctionSection",
    "RewardSection",
    "RuntimeSection",
    "SamplingSection",
    "TaskSection",
    "UpdatesSection",
    "load_recipe",
    "make_method",
    "parse_recipe",
    "recipe_differences",
]
