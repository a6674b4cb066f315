"""Each paper's tables and figures with ours beside them; one module a paper, one for our own.

A study is a module with ``TITLE``, ``CAPTIONS``, ``compute``, ``opening``, ``draw`` and ``checks``
(``studies.common.study.Study``); ``specsim study NAME --out DIR`` writes what it finds.
"""

# Name, what it is about; ``studies.<name>`` is the study.
STUDIES = {
    "leviathan": "Leviathan23: acceptance, cost and the best draft length",
    "csdrafting": "Chen23: cascades of drafts",
    "cascades": "Narasimhan24: speculative cascades, quality against deferral",
    "bild": "Kim23: a small model that may answer alone",
    "specdec": "Xia22: a drafter that fills in masks",
    "fidelity": "our own: every prediction beside its measurement",
}
