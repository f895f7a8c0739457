// All kernels of zkDilithium as functions of the host. FP64 and NAME come from the build, and so does the list.
#include <cstdint>
#include "host/shim.h"
#include "dialect.h"
#include "args.h"
#include "zkdilithium.h"
#include "host/entry.h"

HOST_ENTRY(CASES)
