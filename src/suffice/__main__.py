"""``python -m suffice`` is the ``suffice`` command."""

import sys

from suffice.cli.main import main

sys.exit(main())
