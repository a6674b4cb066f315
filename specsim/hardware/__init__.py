"""Run times from a data sheet and a config.json, before anything has been measured.

A roofline: a run takes the longer of its arithmetic at the peak rate and its bytes at the memory
bandwidth.  It needs no weights, only an accelerator (``accelerators``), the shape of a model
(``shapes``, read from Hugging Face's config.json by ``config``) and how close to its peaks the
machine gets (``roofline.Efficiency``, measured or left at one)::

    >>> from specsim import hardware
    >>> target, gpu = hardware.shape("llama-3.1-8b"), hardware.accelerator("H100-SXM")
    >>> one, nine = (hardware.roofline(target, gpu, n, context=1024).seconds for n in (1, 9))
    >>> round(1000 * one, 2), round(nine / one, 3)
    (4.52, 1.0)
"""

from specsim.hardware.accelerators import (
    ACCELERATORS,
    Accelerator,
    accelerator,
    accelerator_of,
)
from specsim.hardware.config import (
    known_model_types,
    known_shapes,
    read_config,
    shape,
    shape_from_config,
)
from specsim.hardware.interconnects import (
    INTERCONNECTS,
    Interconnect,
    all_gather_s,
    all_reduce_s,
    all_to_all_s,
    interconnect,
    point_to_point_s,
    reduce_scatter_s,
)
from specsim.hardware.parallel import ONE_CARD, Parallelism
from specsim.hardware.quantisation import (
    DTYPES,
    KV_DTYPES,
    known_quantisations,
    precision_for,
)
from specsim.hardware.roofline import (
    Efficiency,
    Roofline,
    memory_needed_bytes,
    roofline,
)
from specsim.hardware.routing import expected_experts
from specsim.hardware.shapes import NUMBER_BYTES, Attention, Layer, Precision, Shape
