"""`python -m jesenska` is `jesenska`."""

import sys

from jesenska.cli.jesenska import main

sys.exit(main())
