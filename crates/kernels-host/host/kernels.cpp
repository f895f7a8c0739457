// All kernels of one family and n, as functions of the host. FAMILY, N and NAME come from the build, and so does the list.
#include <cstdint>
#include "host/shim.h"
#include "family.h"
#include "slh_dsa.h"

#include "host/entry.h"

HOST_ENTRY(CASES)
