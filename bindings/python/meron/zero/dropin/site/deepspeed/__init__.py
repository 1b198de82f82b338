# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's names over Meron (meron.zero.compat). This is not DeepSpeed.

The folder above is on PYTHONPATH because somebody asked for it: `python -m meron.zero.dropin`.
"""

from meron.zero.dropin import take_name

take_name(globals())
del take_name
