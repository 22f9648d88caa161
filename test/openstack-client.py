"""Uses the service through openstacksdk and the `openstack` command, each with several addresses of the same service.

Runs all commands in this process, because a start of `openstack` takes longer than the command.
"""

import contextlib
import io
import json
import os
import sys

import openstack
from keystoneauth1 import adapter, session
from keystoneauth1.identity import Password, Token
from openstack.service_description import ServiceDescription
from openstackclient import shell

given = json.load(sys.stdin)
QUERY = "/v1/{}/connections".format(given["project_id"])


def login(path):
    return {
        "auth_url": given["address"] + path,
        "username": given["user"],
        "password": given["password"],
        "user_domain_name": given["domain"],
        "project_name": given["project"],
        "project_domain_name": given["domain"],
    }


def urls_of_query(path):
    """Where the clients send a query: all of them look for versions in another way."""
    by_catalog = session.Session(auth=Password(**login(path)))
    scope = {"user_domain_name": None, "project_domain_name": None, "default_domain_name": given["domain"]}
    by_default_domain = session.Session(auth=Password(**{**login(path), **scope}))
    project = {name: login(path)[name] for name in ["auth_url", "project_name", "project_domain_name"]}
    by_token = session.Session(auth=Token(token=by_catalog.get_token(), **project))
    by_version = adapter.Adapter(by_catalog, service_type="waf", version="1")
    sdk = openstack.connect(region_name=given["region"], auth=login(path))
    sdk.add_service(ServiceDescription("waf"))
    waf = {"service_type": "waf", "interface": "public", "region_name": given["region"]}
    responses = [
        by_catalog.get(QUERY, endpoint_filter=waf),
        by_default_domain.get(QUERY, endpoint_filter=waf),
        by_token.get(QUERY, endpoint_filter=waf),
        by_version.get(QUERY),
        sdk.waf.get(QUERY),
    ]
    return [response.url for response in responses if response.status_code == 200]


def names_in_sdk(path):
    identity = openstack.connect(region_name=given["region"], auth=login(path)).identity
    project = identity.find_project(given["project"])
    domain = identity.find_domain(given["domain"])
    return [project.id, domain.id, [project.name for project in identity.projects()]]


def run(*args):
    """The JSON that a command prints; its status if it fails."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
        try:
            status = shell.main([*args, "-f", "json"])
        except SystemExit as exit:
            status = exit.code
    return json.loads(printed.getvalue()) if status == 0 else status


def commands(*options):
    token = run(*options, "token", "issue")
    return {
        "token": [token["user_id"], token["project_id"]],
        "catalog": [entry["Type"] for entry in run(*options, "catalog", "list")],
        "project": run(*options, "project", "show", given["project"])["id"],
        "projects": [project["Name"] for project in run(*options, "project", "list")],
        "user": run(*options, "user", "show", given["user"])["id"],
    }


def administration():
    users = run("user", "list")
    if isinstance(users, int):
        return users
    assignments = run("role", "assignment", "list", "--names", "--project", given["project"])
    return {
        "users": [user["Name"] for user in users],
        "of the domain": [user["Name"] for user in run("user", "list", "--domain", given["domain"])],
        "roles": [role["Name"] for role in run("role", "list")],
        "assignments": [[one["User"], one["Role"], one["Project"]] for one in assignments],
    }


def changes():
    """With a token for the domain."""
    auth = {name: value for name, value in login("").items() if not name.startswith("project_")}
    identity = openstack.connect(auth={**auth, "domain_name": given["domain"]}).identity
    user = identity.create_user(name="tester", password="a long password")
    role = identity.find_role("ingest")
    identity.assign_project_role_to_user(given["project_id"], user, role)
    granted = [one.role["id"] for one in identity.role_assignments(user_id=user.id)]
    identity.unassign_project_role_from_user(given["project_id"], user, role)
    user = identity.update_user(user, password="another password", is_enabled=False)
    identity.delete_user(user, ignore_missing=False)
    project = identity.create_project(name="extra")
    project = identity.update_project(project, is_enabled=False)
    identity.delete_project(project, ignore_missing=False)
    try:
        identity.delete_project(given["project_id"])
    except openstack.exceptions.BadRequestException:
        refused = True
    left = [one.name for one in [*identity.users(), *identity.projects()]]
    return [granted, user.is_enabled, project.is_enabled, refused, left]


result = {"urls": [urls_of_query(path) for path in given["paths"]], "sdk": names_in_sdk(""), "commands": []}
# Before the variables are set, which name a project.
if given["role"] == "admin":
    result["changes"] = changes()
names = ["AUTH_URL", "USERNAME", "PASSWORD", "USER_DOMAIN_NAME", "PROJECT_NAME", "PROJECT_DOMAIN_NAME"]
for place, path in given["variants"]:
    if place == "clouds.yaml":
        clouds = {"clouds": {"ours": {"auth": login(path), "region_name": given["region"]}}}
        os.environ["OS_CLIENT_CONFIG_FILE"] = given["clouds"]
        with open(given["clouds"], "w") as file:
            json.dump(clouds, file)
        result["commands"].append(commands("--os-cloud", "ours"))
        del os.environ["OS_CLIENT_CONFIG_FILE"]
    else:
        os.environ["OS_REGION_NAME"] = given["region"]
        os.environ.update({"OS_" + name: login(path)[name.lower()] for name in names})
        result["commands"].append(commands())
result["administration"] = administration()
json.dump(result, sys.stdout)
