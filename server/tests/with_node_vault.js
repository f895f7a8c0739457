// Drives the server by node-vault, a client of Vault that nobody here wrote. `clients.rs` runs it: with_node_vault.js ADDRESS TOKEN
"use strict";

const assert = require("node:assert/strict");
const vault = require("node-vault");

const [address, token] = process.argv.slice(2);
const endpoint = `http://${address}`;
const client = vault({ endpoint, token });
const b64 = (text) => Buffer.from(text).toString("base64");

/** The server refuses this with a status, and with a sentence that contains `part`. */
async function refused(promise, status, part) {
    const why = await promise.then((answer) => assert.fail(`allowed: ${JSON.stringify(answer)}`), (why) => why);
    assert.equal(why.response?.statusCode, status, why.message);
    assert.ok(why.message.includes(part), why.message);
}

async function sign_and_verify() {
    assert.equal((await client.initialized()).initialized, true);
    assert.equal((await client.status()).sealed, false);
    assert.equal((await client.health()).sealed, false);

    const made = await client.transitCreateKey({ name: "node", type: "slh-dsa", parameter_set: "slh-dsa-sha2-128f" });
    assert.equal(made.data.latest_version, 1);
    assert.deepEqual((await client.transitListKeys()).data.keys, ["node"]);
    assert.equal((await client.transitReadKey({ name: "node" })).data.type, "slh-dsa");
    // Without the method LIST, node-vault sends GET with list=1.
    const plain = vault({ endpoint, token, noCustomHTTPVerbs: true });
    assert.deepEqual((await plain.list("transit/keys")).data.keys, ["node"]);

    const signed = await client.write("transit/sign/node", { input: b64("Dear reader") });
    const { signature } = signed.data;
    assert.match(signature, /^vault:v1:/);
    const verify = async (text) => (await client.write("transit/verify/node", { input: b64(text), signature })).data.valid;
    assert.equal(await verify("Dear reader"), true);
    assert.equal(await verify("Dear writer"), false);

    const items = Array.from({ length: 20 }, (_, index) => ({ input: b64(String(index)), reference: String(index) }));
    const batch = { batch_input: items, hash_algorithm: "sha2-256" };
    const results = (await client.write("transit/sign/node", batch)).data.batch_results;
    assert.deepEqual(results.map((result) => result.reference), items.map((item) => item.reference));
    items.forEach((item, index) => { item.signature = results[index].signature; });
    items[3].input = b64("another");
    const verdicts = (await client.write("transit/verify/node/sha2-256", { batch_input: items })).data.batch_results;
    assert.deepEqual(verdicts.map((verdict) => verdict.valid), items.map((_, index) => index !== 3));
    return signature;
}

async function rotate_and_configure(signature) {
    await client.write("transit/keys/node/rotate", {});
    assert.equal((await client.transitReadKey({ name: "node" })).data.latest_version, 2);
    await client.write("transit/keys/node/config", { min_decryption_version: 2, deletion_allowed: true });
    const old = client.write("transit/verify/node", { input: b64("Dear reader"), signature });
    await refused(old, 400, "minimum version 2");
    const exported = await client.read("transit/export/public-key/node");
    assert.match(exported.data.keys["2"], /^-----BEGIN PUBLIC KEY-----/);
}

async function use_a_policy() {
    const policy = JSON.stringify({ path: { "transit/sign/node": { capabilities: ["update"] } } });
    await client.addPolicy({ name: "signer", policy });
    assert.equal((await client.read("sys/policies/acl/signer")).data.policy, policy);
    // Older programs call the text `rules`.
    await client.addPolicy({ name: "older", rules: policy });
    assert.equal((await client.getPolicy({ name: "older" })).data.rules, policy);
    assert.deepEqual((await client.policies()).data.policies, ["default", "older", "root", "signer"]);
    await client.removePolicy({ name: "older" });
    await refused(client.getPolicy({ name: "older" }), 404, "404");
    const { auth } = await vault({ endpoint, token }).tokenCreate({ policies: ["signer"], ttl: "1h" });
    const user = vault({ endpoint, token: auth.client_token });
    assert.deepEqual((await user.tokenLookupSelf()).data.policies, ["default", "signer"]);
    await user.write("transit/sign/node", { input: b64("m") });
    await refused(user.write("transit/keys/node/rotate", {}), 403, "permission denied");
    await refused(user.seal(), 403, "permission denied");
    await refused(user.policies(), 403, "permission denied");
    await user.tokenRevokeSelf();
    await refused(user.tokenLookupSelf(), 403, "permission denied");
}

async function be_refused_and_delete() {
    await refused(client.write("transit/sign/node", { input: "%" }), 400, "input");
    await refused(client.write("transit/sign/nobody", { input: "" }), 400, "no key 'nobody'");
    await refused(client.transitCreateKey({ name: "node", type: "aes256-gcm96" }), 400, "slh-dsa");
    await client.transitDeleteKey({ name: "node" });
    await refused(client.transitReadKey({ name: "node" }), 404, "404");
    await client.seal();
    assert.equal((await client.status()).sealed, true);
    assert.equal((await client.health()).sealed, true);
    await refused(client.transitListKeys(), 503, "sealed");
}

(async () => {
    await rotate_and_configure(await sign_and_verify());
    await use_a_policy();
    await be_refused_and_delete();
    console.log(`node-vault ${require("node-vault/package.json").version} drove the server`);
})().catch((why) => {
    console.error(why);
    process.exit(1);
});
