// Drives the server by spring-vault-core, a client of Vault that nobody here wrote. `clients.rs` runs it: WithSpringVault ADDRESS TOKEN

import java.net.URI;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import org.springframework.http.HttpStatus;
import org.springframework.vault.VaultException;
import org.springframework.vault.authentication.TokenAuthentication;
import org.springframework.vault.client.VaultEndpoint;
import org.springframework.vault.core.VaultSysOperations;
import org.springframework.vault.core.VaultTemplate;
import org.springframework.vault.core.VaultTransitOperations;
import org.springframework.vault.support.Plaintext;
import org.springframework.vault.support.Policy;
import org.springframework.vault.support.Signature;
import org.springframework.vault.support.VaultSignRequest;
import org.springframework.vault.support.VaultSignatureVerificationRequest;
import org.springframework.vault.support.VaultToken;
import org.springframework.vault.support.VaultTokenRequest;
import org.springframework.vault.support.VaultTransitKeyConfiguration;
import org.springframework.vault.support.VaultTransitKeyCreationRequest;
import org.springframework.web.client.RestClientResponseException;

public final class WithSpringVault {
    private static VaultEndpoint endpoint;
    private static VaultTemplate client;
    private static VaultTransitOperations transit;

    public static void main(String[] arguments) {
        endpoint = VaultEndpoint.from(URI.create("http://" + arguments[0]));
        client = with(arguments[1]);
        transit = client.opsForTransit();
        Signature old = signAndVerify();
        batch();
        rotateAndConfigure(old);
        usePolicy();
        beRefusedAndDelete();
        String version = VaultTemplate.class.getPackage().getImplementationVersion();
        System.out.println("spring-vault-core " + version + ", Java " + Runtime.version().feature() + " drove the server");
    }

    private static VaultTemplate with(String token) {
        return new VaultTemplate(endpoint, new TokenAuthentication(token));
    }

    private static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }

    /** The server refuses this with a status, and with a text that contains `part`. */
    private static void refused(Runnable request, HttpStatus status, String part) {
        try {
            request.run();
        } catch (VaultException | RestClientResponseException why) {
            Throwable cause = why instanceof VaultException ? why.getCause() : why;
            check(cause instanceof RestClientResponseException, "another error: " + why);
            RestClientResponseException answer = (RestClientResponseException) cause;
            check(answer.getStatusCode().value() == status.value(), status + ", but it is " + answer);
            check(answer.getResponseBodyAsString().contains(part), part + ": " + answer.getResponseBodyAsString());
            return;
        }
        throw new AssertionError("allowed, where " + status + " was due: " + part);
    }

    private static Signature signAndVerify() {
        check(client.opsForSys().isInitialized(), "initialised");
        check(!client.opsForSys().getUnsealStatus().isSealed(), "unsealed");
        check(!client.opsForSys().health().isSealed(), "healthy");

        // The typed createKey has no parameter set, so keys are made by the generic write.
        Map<String, Object> key = Map.of("type", "slh-dsa", "parameter_set", "slh-dsa-sha2-128f");
        Map<String, Object> made = client.write("transit/keys/spring", key).getRequiredData();
        check(made.get("latest_version").equals(1), "version 1: " + made);
        check(transit.getKeys().equals(List.of("spring")), "one key: " + transit.getKeys());
        check(transit.getKey("spring").getType().equals("slh-dsa"), transit.getKey("spring").getType());

        Plaintext message = Plaintext.of("Dear reader");
        Signature signature = transit.sign("spring", message);
        check(signature.getSignature().startsWith("vault:v1:"), signature.getSignature());
        check(transit.verify("spring", message, signature), "the signature verifies");
        check(!transit.verify("spring", Plaintext.of("Dear writer"), signature), "another message does not verify");

        VaultSignRequest hashed = VaultSignRequest.builder().plaintext(message).hashAlgorithm("sha2-256").build();
        Signature ofHash = transit.sign("spring", hashed);
        check(!transit.verify("spring", message, ofHash), "a signature of HashSLH-DSA names its hash function");
        VaultSignatureVerificationRequest verification = VaultSignatureVerificationRequest.builder()
                .plaintext(message).signature(ofHash).hashAlgorithm("sha2-256").build();
        check(transit.verify("spring", verification).isValid(), "the signature of HashSLH-DSA verifies");
        return signature;
    }

    /** Batches of signatures have no typed method, so these use the generic write. */
    @SuppressWarnings("unchecked")
    private static void batch() {
        List<Map<String, Object>> items = new ArrayList<>();
        for (int index = 0; index < 20; index++) {
            items.add(new HashMap<>(Map.of("input", base64("" + index), "reference", "" + index)));
        }
        Map<String, Object> answer = client.write("transit/sign/spring", Map.of("batch_input", items)).getRequiredData();
        List<Map<String, Object>> signed = (List<Map<String, Object>>) answer.get("batch_results");
        for (int index = 0; index < 20; index++) {
            check(signed.get(index).get("reference").equals("" + index), "in order: " + index);
            items.get(index).put("signature", signed.get(index).get("signature"));
        }
        items.get(3).put("input", base64("another"));
        answer = client.write("transit/verify/spring", Map.of("batch_input", items)).getRequiredData();
        List<Map<String, Object>> verdicts = (List<Map<String, Object>>) answer.get("batch_results");
        IntStream.range(0, 20).forEach(index ->
                check(verdicts.get(index).get("valid").equals(index != 3), "item " + index + ": " + verdicts.get(index)));
    }

    private static void rotateAndConfigure(Signature old) {
        transit.rotate("spring");
        check(transit.getKey("spring").getLatestVersion() == 2, "version 2");
        VaultTransitKeyConfiguration settings =
                VaultTransitKeyConfiguration.builder().minDecryptionVersion(2).deletionAllowed(true).build();
        transit.configureKey("spring", settings);
        check(transit.getKey("spring").getMinDecryptionVersion() == 2, "at least version 2");
        check(transit.getKey("spring").isDeletionAllowed(), "it may be deleted");
        refused(() -> transit.verify("spring", Plaintext.of("Dear reader"), old), HttpStatus.BAD_REQUEST, "minimum version 2");
        // Public keys are none of the client's types of exported keys.
        Object keys = client.read("transit/export/public-key/spring").getRequiredData().get("keys");
        String newest = (String) ((Map<?, ?>) keys).get("2");
        check(newest.startsWith("-----BEGIN PUBLIC KEY-----"), newest);
    }

    private static void usePolicy() {
        VaultSysOperations sys = client.opsForSys();
        Policy policy = Policy.of(Policy.Rule.builder()
                .path("transit/sign/spring").capability(Policy.BuiltinCapabilities.UPDATE).build());
        sys.createOrUpdatePolicy("signer", policy);
        sys.createOrUpdatePolicy("older", policy);
        check(sys.getPolicy("signer").equals(policy), "the policy is stored: " + sys.getPolicy("signer"));
        check(sys.getPolicyNames().equals(List.of("default", "older", "root", "signer")), "names: " + sys.getPolicyNames());
        sys.deletePolicy("older");
        check(sys.getPolicy("older") == null, "a deleted policy was read");
        VaultTokenRequest request = VaultTokenRequest.builder().withPolicy("signer").ttl(Duration.ofHours(1)).build();
        VaultToken token = client.opsForToken().create(request).getToken();
        VaultTemplate user = with(token.getToken());
        Object policies = user.read("auth/token/lookup-self").getRequiredData().get("policies");
        check(policies.equals(List.of("default", "signer")), "policies: " + policies);
        user.opsForTransit().sign("spring", Plaintext.of("m"));
        refused(() -> user.opsForTransit().rotate("spring"), HttpStatus.FORBIDDEN, "permission denied");
        refused(() -> user.opsForSys().seal(), HttpStatus.FORBIDDEN, "permission denied");
        client.opsForToken().revoke(token);
        refused(() -> user.opsForTransit().sign("spring", Plaintext.of("m")), HttpStatus.FORBIDDEN, "permission denied");
    }

    private static void beRefusedAndDelete() {
        refused(() -> transit.sign("nobody", Plaintext.of("m")), HttpStatus.BAD_REQUEST, "no key 'nobody'");
        VaultTransitKeyCreationRequest other = VaultTransitKeyCreationRequest.ofKeyType("aes256-gcm96");
        refused(() -> transit.createKey("spring", other), HttpStatus.BAD_REQUEST, "slh-dsa");
        transit.deleteKey("spring");
        // The client returns null for 404.
        check(client.read("transit/keys/spring") == null, "a deleted key was read");
        client.opsForSys().seal();
        check(client.opsForSys().getUnsealStatus().isSealed(), "sealed");
        check(client.opsForSys().health().isSealed(), "not healthy");
        refused(() -> transit.getKeys(), HttpStatus.SERVICE_UNAVAILABLE, "sealed");
    }

    private static String base64(String text) {
        return Base64.getEncoder().encodeToString(text.getBytes());
    }
}
