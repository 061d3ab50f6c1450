# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""What is known of the published problems: values and seconds measured elsewhere."""

import dataclasses


@dataclasses.dataclass
class Throughput:
    contiguous: float  # the exact dynamic program's value
    dp_seconds: float  # of the authors' program for it
    dp_megabytes: float
    one_device: float  # all on one accelerator
    best: float  # any split
    proof_seconds: float | None  # branch and bound: optimum and proof
    multistart: float  # Mt-KaHyPar, 363 or 453 runs
    multistart_seconds: float


THROUGHPUT = {
    "layer_bert24_inference": Throughput(17.7899, 0.00, 3.8, 92.406, 17.71472, None, 17.716, 3.6),
    "layer_bert24_training": Throughput(41.7458, 0.00, 3.8, 217.813, 39.78954, None, 39.876, 3.6),
    "layer_resnet50_inference": Throughput(
        33.7747, 0.15, 5.4, 201.450, 33.31522, None, 33.792, 8.2
    ),
    "layer_resnet50_training": Throughput(78.6318, 0.23, 5.7, 462.381, 76.51252, None, 77.546, 8.2),
    "operator_bert_l-3_inference": Throughput(
        27.9186, 1.16, 28.7, 49.353, 21.90838, 0.18, 21.908, 3.5
    ),
    "operator_bert_l-3_training": Throughput(
        65.3031, 7.80, 72.7, 122.987, 54.20740, 0.33, 55.272, 3.8
    ),
    "operator_bert_l-6_inference": Throughput(
        29.5795, 4.39, 56.1, 77.462, 28.33219, 4.2, 28.745, 5.7
    ),
    "operator_resnet50_inference": Throughput(
        124.3490, 0.19, 6.1, 325.132, 124.34885, 0.71, 132.880, 6.7
    ),
    "operator_resnet50_training": Throughput(
        255.1940, 0.48, 8.3, 684.891, 255.19442, 0.82, 281.131, 8.0
    ),
}

OPEN = ("layer_bert24_inference", "layer_resnet50_inference", "layer_resnet50_training")

# Every transfer of the layer graphs x 1000 (their published unit is a slip): contiguous optimum.
COSTLY = {
    "layer_bert24_inference": 20.591,
    "layer_bert24_training": 46.608,
    "layer_resnet50_inference": 181.900,
    "layer_resnet50_training": 479.038,
}


@dataclasses.dataclass
class Latency:
    best: float
    greedy: float
    expert: str
    dp_split: float  # the split with the least max load


LATENCY = {
    "layer_bert24_inference": Latency(100.2185, 100.219, "111.937", 108.031),
    "layer_resnet50_inference": Latency(1156.881, 4197.060, "1014.927, over memory", 1443.793),
    "operator_bert_l-3_inference": Latency(408.476, 416.204, "", 414.441),
    "operator_bert_l-6_inference": Latency(438.062, 494.135, "", 444.020),
    "operator_resnet50_inference": Latency(651.121, 839.536, "", 1123.653),
}
