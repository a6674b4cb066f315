"""Each paper's tables and figures with ours beside them; one package a paper, one for our own.

``studies.<name>.page`` holds a ``STUDY`` (``studies.common.study.Study``), and
``specsim study NAME --out DIR`` writes what it finds.  In each package ``paper`` has the printed
numbers, ``tables`` what our models do, ``figures`` the pictures and ``page`` the sentences; other
modules are subjects of their own.
"""

# Name, what it is about.
STUDIES = {
    "leviathan": "Leviathan23: acceptance, cost and the best draft length",
    "csdrafting": "Chen23: cascades of drafts",
    "cascades": "Narasimhan24: speculative cascades, quality against deferral",
    "bild": "Kim23: a small model that may answer alone",
    "specdec": "Xia22: a drafter that fills in masks",
    "fidelity": "our own: every prediction beside its measurement",
    "serving": "our own: vLLM under load, predicted before",
}
