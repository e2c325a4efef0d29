"""Gates: is the new run slower than its baseline, was that the right baseline, and how do CI systems hear of it?"""
