#!/usr/bin/env python3
"""How far torch's erf in bfloat16 is off over all bfloat16 numbers: the floor of Erf (src/ops/operators/erf.cpp).

Usage: PYTHON-WITH-TORCH bench/measure_torch_erf.py

Prints the largest error beyond half a unit in the last place, in units of 2^-24, and where it is. Its kernel works in
float, where it takes small results from 1 - erfc.
"""

import math

import torch

x = torch.arange(65536).to(torch.int32).to(torch.int16).view(torch.bfloat16)
x = x[torch.isfinite(x)]
right = torch.tensor([math.erf(v) for v in x.tolist()], dtype=torch.float64)
error = (torch.erf(x).double() - right).abs() - right.abs() * 2.0**-8
worst = int(error.argmax())
print(f"{error[worst].item() * 2**24:.1f} units of 2^-24 beyond half an ulp, at {x[worst].item():g} (torch {torch.__version__})")
