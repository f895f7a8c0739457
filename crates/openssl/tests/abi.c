/* The structures that src/abi/types.rs declares are those of this OpenSSL's headers. It compiles, or says which is not. */
#include <openssl/core.h>
#include <openssl/core_dispatch.h>
#include <openssl/core_object.h>
#include <openssl/params.h>
#include <stddef.h>

#define SAME(structure, member, at) _Static_assert(offsetof(structure, member) == (at), #structure "." #member)

_Static_assert(sizeof(OSSL_DISPATCH) == 16, "OSSL_DISPATCH");
SAME(OSSL_DISPATCH, function_id, 0);
SAME(OSSL_DISPATCH, function, 8);

_Static_assert(sizeof(OSSL_ALGORITHM) == 32, "OSSL_ALGORITHM");
SAME(OSSL_ALGORITHM, algorithm_names, 0);
SAME(OSSL_ALGORITHM, property_definition, 8);
SAME(OSSL_ALGORITHM, implementation, 16);
SAME(OSSL_ALGORITHM, algorithm_description, 24);

_Static_assert(sizeof(OSSL_ITEM) == 16, "OSSL_ITEM");
SAME(OSSL_ITEM, id, 0);
SAME(OSSL_ITEM, ptr, 8);

_Static_assert(sizeof(OSSL_PARAM) == 40, "OSSL_PARAM");
SAME(OSSL_PARAM, key, 0);
SAME(OSSL_PARAM, data_type, 8);
SAME(OSSL_PARAM, data, 16);
SAME(OSSL_PARAM, data_size, 24);
SAME(OSSL_PARAM, return_size, 32);

_Static_assert(OSSL_PARAM_INTEGER == 1 && OSSL_PARAM_UNSIGNED_INTEGER == 2, "kinds of numbers");
_Static_assert(OSSL_PARAM_UTF8_STRING == 4 && OSSL_PARAM_OCTET_STRING == 5 && OSSL_PARAM_UTF8_PTR == 6, "kinds of bytes");
_Static_assert(OSSL_OP_KEYMGMT == 10 && OSSL_OP_SIGNATURE == 12 && OSSL_OP_ENCODER == 20 && OSSL_OP_DECODER == 21, "operations");
_Static_assert(OSSL_KEYMGMT_SELECT_PRIVATE_KEY == 1 && OSSL_KEYMGMT_SELECT_PUBLIC_KEY == 2, "selections");
_Static_assert(OSSL_OBJECT_PKEY == 2, "OSSL_OBJECT_PKEY");
_Static_assert(OSSL_PARAM_UNMODIFIED == (size_t)-1, "OSSL_PARAM_UNMODIFIED");
/* A list of arguments is passed by its address, and has at most 32 bytes: see Core::raise. */
_Static_assert(sizeof(va_list) <= 32, "va_list");

int main(void)
{
    return 0;
}
