"""Characters that no reader sees, though a name from a user's file can have them."""

from __future__ import annotations

import re
import unicodedata

_INVISIBLE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
BLANK = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0]")  # letters and signs that show nothing


def hidden(c: str) -> bool:
    """Whether a character acts, or is there and shows nothing."""
    return unicodedata.category(c) in _INVISIBLE or BLANK.match(c) is not None
