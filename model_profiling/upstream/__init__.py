"""What the kit relies on and nobody promised: private parts of ExecuTorch, torch, XNNPACK, cpuinfo, KleidiAI and Ray.

One file per subject, with the check of each reliance. `reliances.txt` says what it is, with which versions it was
proven, how it is checked at run time, and what happens instead where the check fails.
"""
