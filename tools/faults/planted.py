"""The planted faults: what is changed in which file, what that breaks, and who must find it.

The texts follow the code: one that is not there exactly once is refused when it is planted.
"""

from faults import in_noise, in_other, in_people, in_release, in_sums, in_surroundings, joint_noise

FAULTS = (
    *in_sums.FAULTS,
    *in_people.FAULTS,
    *in_noise.FAULTS,
    *joint_noise.FAULTS,
    *in_release.FAULTS,
    *in_other.FAULTS,
    *in_surroundings.FAULTS,
)
