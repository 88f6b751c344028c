"""The recipe of a run: typed, unknown keys refused with the nearest valid name, defaults as in the paper."""

from hacrl.recipe.agent_settings import (
    AgentSettings,
    EndpointSettings,
    LoggedSettings,
    LoraSettings,
    ResourcesSettings,
)
from hacrl.recipe.differences import recipe_differences
from hacrl.recipe.method import MethodSettings
from hacrl.recipe.overrides import load_recipe, parse_recipe, saved_recipe
from hacrl.recipe.problems import RecipeError
from hacrl.recipe.recipe import Recipe
from hacrl.recipe.settings import (
    AuditSettings,
    CapabilitySettings,
    CheckpointSettings,
    EvaluationSettings,
    ExchangeSettings,
    LoggingSettings,
    OptimiserSettings,
    RewardFunctionSettings,
    RewardSettings,
    RuntimeSettings,
    SamplingSettings,
    TaskSettings,
    UpdatesSettings,
)

__all__ = [
    "AgentSettings",
    "AuditSettings",
    "CapabilitySettings",
    "CheckpointSettings",
    "EndpointSettings",
    "EvaluationSettings",
    "ExchangeSettings",
    "LoggedSettings",
    "LoggingSettings",
    "LoraSettings",
    "MethodSettings",
    "OptimiserSettings",
    "Recipe",
    "RecipeError",
    "ResourcesSettings",
    "RewardFunctionSettings",
    "RewardSettings",
    "RuntimeSettings",
    "SamplingSettings",
    "TaskSettings",
    "UpdatesSettings",
    "load_recipe",
    "parse_recipe",
    "recipe_differences",
    "saved_recipe",
]
