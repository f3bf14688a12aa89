"""What no document can say to schemathesis: keys that are used once, and the signatures of callbacks."""

import hashlib
import hmac
import itertools
import os
import time

import requests
import schemathesis

SECRET = os.environ["DAIS_CALLBACK_SECRET"].encode()
NUMBERS = itertools.count()


@schemathesis.hook
def before_call(context, case, kwargs):
    """A good idempotency key becomes one that no other request had; a callback is signed."""
    key = (case.headers or {}).get("Idempotency-Key")
    if isinstance(key, str) and 1 <= len(key) <= 64 and all("!" <= char <= "~" for char in key):
        case.headers["Idempotency-Key"] = f"{key[:40]}-{next(NUMBERS)}"
    if case.operation.path == "/rtc/generic/{app}":
        kwargs["auth"] = Signature()


class Signature(requests.auth.AuthBase):
    """Headers of the right form become those of the body that is sent."""

    def __call__(self, request):
        timestamp = request.headers.get("Dais-Timestamp", "")
        signature = request.headers.get("Dais-Signature", "")
        if timestamp.isdigit() and len(timestamp) <= 20 and 1 <= len(signature) <= 1024:
            now = str(int(time.time()))
            body = request.body or b""
            body = body.encode() if isinstance(body, str) else body
            digest = hmac.new(SECRET, f"{now}.".encode() + body, hashlib.sha256).hexdigest()
            request.headers["Dais-Timestamp"] = now
            request.headers["Dais-Signature"] = f"v1={digest}"
        return request
