// All kernels of zkDilithium as functions of the host. FP64 and NAME come from the build.
#include <cstdint>
#include "host/shim.h"
#include "dialect.h"
#include "args.h"
#include "entry/zk_seed.k"
#include "entry/zk_matrix.k"
#include "entry/zk_short.k"
#include "entry/zk_public.k"
#include "entry/zk_tr.k"
#include "entry/zk_keys.k"
#include "entry/zk_sponge.k"
#include "entry/zk_rho2.k"
#include "entry/zk_mask.k"
#include "entry/zk_commit.k"
#include "entry/zk_respond.k"
#include "entry/zk_select.k"
#include "host/entry.h"

HOST_ENTRY(
  CASE(20, zk_seed) CASE(21, zk_matrix) CASE(22, zk_short) CASE(23, zk_public) CASE(24, zk_tr) CASE(25, zk_keys)
  CASE(26, zk_sponge) CASE(27, zk_rho2) CASE(28, zk_mask) CASE(29, zk_commit) CASE(30, zk_respond) CASE(31, zk_select)
)
