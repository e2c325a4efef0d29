"""What the kit relies on and nobody promised: private parts of ExecuTorch, torch, XNNPACK, cpuinfo, KleidiAI and Ray.

One file per subject. Each has its records (`Reliance`): what it relies on, with which versions that was proven, how it
is checked at run time, and what happens instead when the check fails. `all_reliances.py` lists them.
"""
