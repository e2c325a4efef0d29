"""What NumPy raises for a damaged .npy file: it reads the header as a Python literal."""

from tokenize import TokenError

NPY_ERRORS = (ValueError, OSError, EOFError, SyntaxError, TokenError, UnicodeError, MemoryError, OverflowError)
