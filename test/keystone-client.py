"""Queries the service through keystoneauth alone: discovery, catalog, and a renewed login after a revoked token."""

import json
import sys
import time

from keystoneauth1 import session
from keystoneauth1.identity import Password

given = json.load(sys.stdin)
auth = Password(
    auth_url=given["identity"],
    username=given["user"],
    password=given["password"],
    user_domain_name=given["domain"],
    project_id=given["project_id"],
)
client = session.Session(auth=auth)


def timeline():
    path = "/v1/{}/waf/event/timeline?{}".format(given["project_id"], given["query"])
    waf = {"service_type": "waf", "interface": "public", "region_name": given["region"]}
    return client.get(path, endpoint_filter=waf).json()


first = timeline()
token = client.get_token()
client.delete(
    "/auth/tokens",
    endpoint_filter={"service_type": "identity", "interface": "public"},
    headers={"X-Subject-Token": token},
)
deadline = time.monotonic() + given.get("revocation_seconds", 0)
second = timeline()
# With a Keystone, the service accepts the revoked token until its cached lookup expires.
while client.get_token() == token and time.monotonic() < deadline:
    time.sleep(0.1)
    second = timeline()
json.dump({"first": first, "second": second, "renewed": client.get_token() != token}, sys.stdout)
