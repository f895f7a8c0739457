// The hash family that the build asks for.
#include "dialect.h"
#include "args.h"
#if FAMILY == 0
#include "hash/sha2.h"
#else
#include "hash/shake.h"
#endif
