"""History: every run below some folders, what it measured, and since when that is slower.

Run directories are the truth. The index is made from them, and can be removed at any time.
"""
