"""Metrics by name, metrics of your own, and what a mechanism sees of a submission."""

from ladderholdout.metrics.arrays import FloatArray, Support
from ladderholdout.metrics.evaluation import Evaluation
from ladderholdout.metrics.items import ItemMetric, metric_of_items
from ladderholdout.metrics.metric import Metric
from ladderholdout.metrics.scores import MeanOfPairs, RatioOfMeans
from ladderholdout.metrics.table import METRICS, get_metric
from ladderholdout.metrics.verdicts import VerdictRecord, verdicts_of

__all__ = [
    "METRICS",
    "Evaluation",
    "FloatArray",
    "ItemMetric",
    "MeanOfPairs",
    "Metric",
    "RatioOfMeans",
    "Support",
    "VerdictRecord",
    "get_metric",
    "metric_of_items",
    "verdicts_of",
]
