// One signature from Java 22 or newer: java --enable-native-access=ALL-UNNAMED Sign.java P/lib/libhypergrove.so

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;
import java.nio.file.Path;

public class Sign {
    static final int SLH_DSA_SHA2_128F = 21, INVALID_SIGNATURE = 1;
    final SymbolLookup library;

    Sign(String path, Arena arena) {
        library = SymbolLookup.libraryLookup(Path.of(path), arena);
    }

    MethodHandle function(String name, MemoryLayout result, MemoryLayout... arguments) {
        var type = result == null ? FunctionDescriptor.ofVoid(arguments) : FunctionDescriptor.of(result, arguments);
        return Linker.nativeLinker().downcallHandle(library.find(name).orElseThrow(), type);
    }

    void check(int status) throws Throwable {
        if (status != 0) {
            var text = (MemorySegment) function("hg_error_text", ADDRESS).invokeExact();
            throw new IllegalStateException(text.reinterpret(Long.MAX_VALUE).getString(0));
        }
    }

    public static void main(String[] arguments) throws Throwable {
        try (var arena = Arena.ofConfined()) {
            var hg = new Sign(arguments[0], arena);
            var handle = arena.allocate(ADDRESS);
            hg.check((int) hg.function("hg_engine_new", JAVA_INT, ADDRESS, ADDRESS).invokeExact(MemorySegment.NULL, handle));
            var engine = handle.get(ADDRESS, 0);
            var generate = hg.function("hg_private_key_generate", JAVA_INT, ADDRESS, JAVA_INT, ADDRESS);
            hg.check((int) generate.invokeExact(engine, SLH_DSA_SHA2_128F, handle));
            var key = handle.get(ADDRESS, 0);
            hg.check((int) hg.function("hg_public_key_of", JAVA_INT, ADDRESS, ADDRESS).invokeExact(key, handle));
            var publicKey = handle.get(ADDRESS, 0);

            var message = arena.allocateFrom("Dear reader");
            var size = (long) hg.function("hg_signature_size", JAVA_LONG, JAVA_INT).invokeExact(SLH_DSA_SHA2_128F);
            var signature = arena.allocate(size);
            MemoryLayout[] types = {ADDRESS, ADDRESS, ADDRESS, ADDRESS, JAVA_LONG, ADDRESS, JAVA_LONG};
            var sign = hg.function("hg_sign", JAVA_INT, types);
            hg.check((int) sign.invokeExact(engine, key, MemorySegment.NULL, message, message.byteSize(), signature, size));
            var verify = hg.function("hg_verify", JAVA_INT, types);
            hg.check((int) verify.invokeExact(engine, publicKey, MemorySegment.NULL, message, message.byteSize(), signature, size));
            signature.set(JAVA_BYTE, 0, (byte) (signature.get(JAVA_BYTE, 0) ^ 1));
            var changed = (int) verify.invokeExact(engine, publicKey, MemorySegment.NULL, message, message.byteSize(), signature, size);
            if (changed != INVALID_SIGNATURE) {
                throw new IllegalStateException("a changed signature has the status " + changed);
            }
            hg.function("hg_public_key_free", null, ADDRESS).invokeExact(publicKey);
            hg.function("hg_private_key_free", null, ADDRESS).invokeExact(key);
            hg.function("hg_engine_free", null, ADDRESS).invokeExact(engine);
            System.out.println("Java: a valid signature; changed, it is not");
        }
    }
}
