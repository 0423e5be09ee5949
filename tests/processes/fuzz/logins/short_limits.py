"""`jesenska` with short time limits for TLS handshakes and logins, so that a test need not wait for them."""

from __future__ import annotations

import sys

from jesenska.base import limits

HANDSHAKE_SECONDS, LOGIN_SECONDS = 3.0, 6.0

if __name__ == "__main__":
    # Before the modules that read the limits are imported.
    limits.TLS_HANDSHAKE_SECONDS, limits.LOGIN_SECONDS = HANDSHAKE_SECONDS, LOGIN_SECONDS
    from jesenska.cli.jesenska import main

    sys.exit(main())
