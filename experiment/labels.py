"""What methods are called in tables and figures."""

from __future__ import annotations

LABELS = {
    "amped": "AMPED",
    "amped_literal": "AMPED (literal)",
    "amped_release": "AMPED (release)",
    "cesd": "CeSD",
    "cic": "CIC",
    "becl": "BeCL",
    "apt": "APT",
    "rnd": "RND",
    "diayn": "DIAYN",
    "comsd": "ComSD",
    "ddpg": "DDPG",
    "metra": "METRA",
    "metra_discrete": "METRA (discrete)",
    "metra_continuous": "METRA (continuous)",
    "aps": "APS",
    "dads": "DADS",
    "disagreement": "Disagreement",
    "icm": "ICM",
    "proto": "Proto-RL",
    "smm": "SMM",
    "no_rnd": "w/o RND",
    "no_aninfonce": "w/o AnInfoNCE",
    "no_surgery": "w/o surgery",
    "no_selector": "w/o selector",
    "selector": "skill selector",
    "random": "random skill",
    "single": "single skill",
    "oracle": "oracle best skill",
}


def label(method: str) -> str:
    return LABELS.get(method, method)
