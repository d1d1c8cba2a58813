"""Makes the servers and sites of this folder importable by its tests, each by its own name."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
