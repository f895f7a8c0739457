//! Which jobs of a batch have the same key.

use std::collections::BTreeMap;
use std::ptr;

/// The public parts of a key by which a batch tells keys apart: PK.seed, PK.root, and the number that names the cached nodes (`Key::cached_id`).
type Public<'a> = (&'a [u8], &'a [u8], u64);

/// The distinct keys of a batch, and the index of each job's key. Keys are compared by their content, because jobs bring copies: by their public
/// parts, and where these are equal by `is_same`. Secret parts choose no place in memory, so the time of a search says nothing about them.
pub(super) fn distinct<'a, K>(
    keys: impl Iterator<Item = &'a K>,
    public: fn(&'a K) -> Public<'a>,
    is_same: fn(&K, &K) -> bool,
) -> (Vec<&'a K>, Vec<u32>) {
    // A hash map would need a random seed, which the system may refuse. A copy of the first 8 bytes of PK.seed decides most comparisons, without a look at
    // the key itself.
    let (mut distinct, mut known) = (Vec::<&K>::new(), BTreeMap::<([u8; 8], Public<'_>), Vec<u32>>::new());
    let mut last: Option<(&K, u32)> = None;
    let key_of = keys
        .map(|key| match last {
            // Most batches have one key, which their jobs borrow.
            Some((same, number)) if ptr::eq(same, key) => number,
            _ => {
                let public = public(key);
                let numbers = known.entry((*public.0.first_chunk().expect("n is 16 or more"), public)).or_default();
                let number = numbers.iter().copied().find(|number| is_same(distinct[*number as usize], key));
                let number = number.unwrap_or_else(|| {
                    distinct.push(key);
                    numbers.push(distinct.len() as u32 - 1);
                    distinct.len() as u32 - 1
                });
                last.insert((key, number)).1
            }
        })
        .collect();
    (distinct, key_of)
}
