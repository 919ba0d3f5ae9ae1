"""`python -m loadgen.sim`."""

import sys

from loadgen.sim.server import main

sys.exit(main(sys.argv[1:]))
