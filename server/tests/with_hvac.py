"""Drives the server by hvac, a client of Vault that nobody here wrote. `clients.rs` runs it: with_hvac.py ADDRESS TOKEN"""

import base64
import json
import sys

import hvac

address, token = sys.argv[1:]
client = hvac.Client(url=f"http://{address}", token=token)
assert client.sys.is_initialized()
assert not client.sys.is_sealed()
assert client.is_authenticated()
assert client.sys.read_health_status().status_code == 200
assert client.sys.read_health_status(method="GET")["sealed"] is False
transit = client.secrets.transit


def b64(data):
    return base64.b64encode(data).decode()


# hvac's create_key refuses types that it does not know, so keys are made by its generic write.
made = client.write("transit/keys/hvac", type="slh-dsa", parameter_set="slh-dsa-sha2-128f")
assert made["data"]["latest_version"] == 1
assert transit.list_keys()["data"]["keys"] == ["hvac"]
assert transit.read_key("hvac")["data"]["type"] == "slh-dsa"

signed = transit.sign_data("hvac", hash_input=b64(b"Dear reader"))["data"]
assert signed["signature"].startswith("vault:v1:")
check = dict(name="hvac", hash_input=b64(b"Dear reader"), signature=signed["signature"])
assert transit.verify_signed_data(**check)["data"]["valid"] is True
check["hash_input"] = b64(b"Dear writer")
assert transit.verify_signed_data(**check)["data"]["valid"] is False

items = [{"input": b64(str(i).encode()), "reference": str(i)} for i in range(20)]
signed = transit.sign_data("hvac", batch_input=items, hash_algorithm="sha2-256")["data"]["batch_results"]
assert [item["reference"] for item in signed] == [str(i) for i in range(20)]
for item, result in zip(items, signed):
    item["signature"] = result["signature"]
items[3]["input"] = b64(b"another")
verdicts = client.write("transit/verify/hvac/sha2-256", batch_input=items)["data"]["batch_results"]
assert [verdict["valid"] for verdict in verdicts] == [i != 3 for i in range(20)]

transit.rotate_key("hvac")
assert transit.read_key("hvac")["data"]["latest_version"] == 2
transit.update_key_configuration("hvac", min_decryption_version=2, deletion_allowed=True)
try:
    transit.verify_signed_data(name="hvac", hash_input=b64(b"0"), signature=signed[0]["signature"])
    raise AssertionError("a version below the minimum verified")
except hvac.exceptions.InvalidRequest as why:
    assert "minimum version 2" in str(why), why
# Its export_key refuses public keys, too.
public = client.read("transit/export/public-key/hvac")["data"]["keys"]
assert public["2"].startswith("-----BEGIN PUBLIC KEY-----")

policy = {"path": {"transit/sign/hvac": {"capabilities": ["update"]}}}
client.sys.create_or_update_policy("older", policy=policy)
assert json.loads(client.sys.read_acl_policy("older")["data"]["policy"]) == policy
assert json.loads(client.sys.read_policy("older")["data"]["rules"]) == policy
assert client.sys.list_policies()["data"]["policies"] == ["default", "older", "root"]
client.sys.delete_policy("older")
assert client.sys.list_acl_policies()["data"]["keys"] == ["default", "root"]
client.sys.create_or_update_acl_policy("signer", policy=policy)
made = client.auth.token.create(policies=["signer"], ttl="1h")
user = hvac.Client(url=f"http://{address}", token=made["auth"]["client_token"])
assert user.auth.token.lookup_self()["data"]["policies"] == ["default", "signer"]
user.secrets.transit.sign_data("hvac", hash_input=b64(b"m"))
for refused in (lambda: user.secrets.transit.rotate_key("hvac"), lambda: user.sys.seal()):
    try:
        refused()
        raise AssertionError("the policy allowed what it does not name")
    except hvac.exceptions.Forbidden:
        pass
user.auth.token.revoke_self()
assert not user.is_authenticated()

transit.delete_key("hvac")
try:
    transit.read_key("hvac")
    raise AssertionError("a deleted key was read")
except hvac.exceptions.InvalidPath:
    pass
client.sys.seal()
assert client.sys.is_sealed()
assert client.sys.read_health_status().status_code == 503
print("hvac", getattr(hvac, "__version__", ""), "drove the server")
