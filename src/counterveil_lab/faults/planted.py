"""The planted faults: what is changed in which file, what that breaks, and who must find it.

The texts follow the code: one that is not there exactly once is refused when it is planted.
"""

from counterveil_lab.faults import in_noise, in_other, in_release, in_sums

FAULTS = (*in_sums.FAULTS, *in_noise.FAULTS, *in_release.FAULTS, *in_other.FAULTS)
