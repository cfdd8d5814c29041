"""Reads a folder of event files with TensorBoard's own reader, and prints what it finds as one JSON object.

    python tensorboard_reader.py RUN/tensorboard
"""

import json
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import plugin_data_pb2


def value(setting):
    """A `google.protobuf.Value` of one kind."""
    return getattr(setting, setting.WhichOneof("kind"))


events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0, "histograms": 0, "tensors": 0})
events.Reload()
tags = events.Tags()
scalars = {tag: [[e.step, e.wall_time, e.value] for e in events.Scalars(tag)] for tag in tags["scalars"]}
histograms = {
    tag: [[e.step, e.histogram_value.num, e.histogram_value.min, e.histogram_value.max] for e in events.Histograms(tag)]
    for tag in tags["histograms"]
}
metadata = events.PluginTagToContent("hparams")["_hparams_/session_start_info"]
settings = plugin_data_pb2.HParamsPluginData.FromString(metadata).session_start_info
hparams = {key: value(setting) for key, setting in settings.hparams.items()}
print(json.dumps({"scalars": scalars, "histograms": histograms, "hparams": hparams, "group": settings.group_name}))
