"""Start a server without packages that cost memory and time and are of no use here: 20 MB, 5 s.

jsonschema would parse a grammar of IRIs and load a library for durations; httpx would load what its command line needs.
"""

import sys

#: An import of these fails, which jsonschema and httpx expect.
sys.modules |= dict.fromkeys(("rfc3987_syntax", "isoduration", "rich", "click"))

from jupyterhub.singleuser import main  # noqa: E402  (after what it shall not find)

if __name__ == "__main__":
    main()
