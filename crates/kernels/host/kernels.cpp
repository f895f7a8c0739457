// All kernels of one family and n, as functions of the host. FAMILY, N and NAME come from the build.
#include <cstdint>
#include "host/shim.h"
#include "family.h"
#include "entry/keys.k"
#include "entry/chains.k"
#include "entry/complete.k"
#include "entry/xmss.k"
#include "entry/xmss_above.k"
#include "entry/fors.k"
#include "entry/fors_above.k"
#include "entry/fors_pk.k"
#include "entry/wots_select.k"
#include "entry/fors_climb.k"
#include "entry/climb.k"
#include "entry/cached.k"
#include "entry/xmss_wide.k"
#include "entry/fors_pk_wide.k"
#include "entry/leaf_wide.k"
#include "entry/links.k"
#include "entry/sha256.k"
#include "entry/stored.k"
#include "entry/leaf_solo.k"
#include "entry/fors_solo.k"
#include "entry/climb_solo.k"
#include "entry/fors_climb_solo.k"

#include "host/entry.h"

HOST_ENTRY(
  CASE(0, keys) CASE(1, chains) CASE(2, complete) CASE(3, xmss) CASE(4, xmss_above) CASE(5, fors)
  CASE(6, fors_above) CASE(7, fors_pk) CASE(8, wots_select) CASE(9, fors_climb) CASE(10, climb) CASE(11, cached)
  CASE(12, xmss_wide) CASE(13, fors_pk_wide) CASE(14, leaf_wide) CASE(15, links) CASE(16, sha256) CASE(17, stored)
  CASE(18, leaf_solo) CASE(19, fors_solo) CASE(20, climb_solo) CASE(21, fors_climb_solo)
)
