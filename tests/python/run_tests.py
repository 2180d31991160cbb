"""Run tests/python/test_*.py with the Python that runs this: numpy, gymnasium and simstream.

Exit code 77 means skipped: there is no Gymnasium here.
"""

import os
import sys
import unittest

try:
    import gymnasium  # noqa: F401
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

folder = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, folder)
pattern = sys.argv[1] if len(sys.argv) > 1 else "test_*.py"
suite = unittest.defaultTestLoader.discover(folder, pattern)
result = unittest.TextTestRunner(verbosity=2).run(suite)
sys.exit(0 if result.wasSuccessful() and result.testsRun > 0 else 1)
