"""How long a patient could be followed: which features decide it, and G(t | x), the chance of not being censored by t.

In most clinical tables the possible follow-up depends on a feature: the year of enrolment, the centre, the study arm.
Whatever weights patients by one censoring curve for all is wrong then. Without features, the predicted risk may tell
who is censored sooner.
"""

from dcsurv.follow_up.association import Influence
from dcsurv.follow_up.groups import FollowUp, RiskTest
from dcsurv.follow_up.score import CensoringScore
from dcsurv.follow_up.study import study_follow_up, study_risk

__all__ = ["CensoringScore", "FollowUp", "Influence", "RiskTest", "study_follow_up", "study_risk"]
