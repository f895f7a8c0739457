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
  CASE(22, zk_seed) CASE(23, zk_matrix) CASE(24, zk_short) CASE(25, zk_public) CASE(26, zk_tr) CASE(27, zk_keys)
  CASE(28, zk_sponge) CASE(29, zk_rho2) CASE(30, zk_mask) CASE(31, zk_commit) CASE(32, zk_respond) CASE(33, zk_select)
)
