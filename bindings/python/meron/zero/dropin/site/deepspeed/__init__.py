# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's names over Meron (meron.zero.compat). This is not DeepSpeed.

`python -m meron.zero.dropin` prints the path of the folder above, for PYTHONPATH.
"""

from meron.zero.dropin import take_name

take_name(globals())
del take_name
