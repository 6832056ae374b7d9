"""Names of objects in stores, as in `s3://bucket/folder/page.pdf`: what is one, and what it consists of.

A key is taken as it is written: nothing in it is an escape.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from batchocr.errors import UsageError

CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN or AWS_PROFILE; AWS_ENDPOINT_URL for stores "
    "other than Amazon's",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "gcs": "GOOGLE_APPLICATION_CREDENTIALS",
    "abfs": "AZURE_CLIENT_ID, AZURE_TENANT_ID and AZURE_CLIENT_SECRET",
    "abfss": "AZURE_CLIENT_ID, AZURE_TENANT_ID and AZURE_CLIENT_SECRET",
    "hdfs": "HADOOP_CONF_DIR, KRB5CCNAME",
}
"""The schemes of stores, and for each where the credentials of its stores come from."""

_URI = re.compile(rf"({'|'.join(CREDENTIALS)})://", re.IGNORECASE)
_SECRET = re.compile(
    r"[?&;](access_?key|secret_?key|session_?token|account_?key|sas_?token|sig|x-amz-[a-z-]+|aws[a-z_]*)[^=/]*=", re.I
)


def is_uri(name: str) -> bool:
    """Whether a name is that of an object in a store, or a prefix, and not a path."""
    return _URI.match(name) is not None


@dataclass(frozen=True, slots=True)
class Uri:
    """The parts of a URI."""

    scheme: str
    """The scheme, in lower case."""
    authority: str
    """The bucket, or whatever else the store calls it."""
    key: str
    """The name of the object, without leading slashes. It ends in a slash if a prefix is meant, and is empty for the
    whole store."""

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}/{self.key}"


def parse_uri(text: str, *, is_listed: bool = False) -> Uri:
    """What a URI consists of. Raises UsageError if there is no bucket in it, or a secret, which the message leaves out.
    is_listed: a store has named it so: what looks like a secret in its key is none."""
    scheme, _, rest = text.partition("://")
    authority, _, key = rest.partition("/")
    scheme = scheme.lower()
    names_user = "@" in authority and (scheme not in ("abfs", "abfss") or ":" in authority.partition("@")[0])
    if names_user or (_SECRET.search(text) and not is_listed):
        raise UsageError(
            f"an address that begins with {scheme}:// contains credentials: they would end up in tables and logs. "
            f"Leave them out, and put them into the environment ({CREDENTIALS[scheme]})"
        )
    if not authority and scheme != "hdfs":
        raise UsageError(f"{text!r} names no bucket: write {scheme}://BUCKET/KEY")
    if re.search(r"[*?[]", authority):
        raise UsageError(f"{text}: a glob is for the names in a bucket, not for that of the bucket")
    return Uri(scheme, authority, key.lstrip("/"))
