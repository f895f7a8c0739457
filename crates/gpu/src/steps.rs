//! Checks of steps that every driver makes, and groups of steps that may overlap.

use crate::gpu::Step;
use std::collections::BTreeMap;

/// A kind of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// The device's memory.
    Device,
    /// The host's memory that the device sees.
    Host,
}

/// Memory that a step reads or writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// The kind of memory that it must be.
    pub place: Place,
    /// The first byte's address.
    pub at: u64,
    /// How many bytes.
    pub bytes: usize,
    /// Whether the step changes the memory.
    pub writes: bool,
}

impl Access {
    /// Whether the order of the two accesses matters.
    pub fn conflicts(&self, other: &Access) -> bool {
        let (end, others) = (self.at + self.bytes as u64, other.at + other.bytes as u64);
        (self.writes || other.writes) && self.at < others && other.at < end
    }
}

/// The memory that a step copies or clears; columns count with the bytes between them. Launches give nothing: their arguments are unknown here.
pub fn accesses(step: &Step) -> impl Iterator<Item = Access> + use<> {
    let device = |at, bytes, writes| Some(Access { place: Place::Device, at, bytes, writes });
    let host = |at, bytes, writes| Some(Access { place: Place::Host, at, bytes, writes });
    let both = match *step {
        Step::Upload { to, from, bytes } => [device(to, bytes, true), host(from, bytes, false)],
        Step::UploadColumns { to, from, width, pitch, rows } => {
            let span = rows.saturating_sub(1) * pitch + width;
            [device(to, span, true), host(from, span, false)]
        }
        Step::Download { to, from, bytes } => [device(from, bytes, false), host(to, bytes, true)],
        Step::Zero { at, bytes } => [device(at, bytes, true), None],
        Step::Launch(_) | Step::SideLaunch(_) | Step::Fork | Step::Join => [None, None],
    };
    both.into_iter().flatten().filter(|access| access.bytes != 0)
}

/// Checks that the side stream is used between `Fork` and `Join` alone, and is joined at the end.
pub fn check_order(steps: &[Step]) -> Result<(), &'static str> {
    let mut forked = false;
    for step in steps {
        match step {
            Step::Fork => forked = true,
            Step::Join if !forked => return Err("joins a side stream that was not forked"),
            Step::Join => forked = false,
            Step::SideLaunch(_) if !forked => return Err("launches on a side stream that was not forked"),
            _ => {}
        }
    }
    if forked { Err("leaves its side stream without a join") } else { Ok(()) }
}

/// The range from the first launch to the last, `Fork`, `Join` and the steps between them included; empty without a launch.
pub fn launches(steps: &[Step]) -> std::ops::Range<usize> {
    let is_launch = |step: &Step| matches!(step, Step::Launch(_) | Step::SideLaunch(_) | Step::Fork | Step::Join);
    let first = steps.iter().position(is_launch).unwrap_or(steps.len());
    first..steps.iter().rposition(is_launch).map_or(first, |at| at + 1)
}

/// Copies and launches in groups that run one after the other; the steps of a group may overlap. This is for drivers that have barriers
/// instead of streams. The steps must have passed [`check_order`].
pub fn groups(steps: &[Step]) -> Vec<Vec<&Step>> {
    let mut groups: Vec<Vec<&Step>> = Vec::new();
    // For each stream the group of its next step; and the accesses of the main stream's last group, if that group copies.
    let (mut main, mut side, mut copied): (usize, usize, Vec<Access>) = (0, 0, Vec::new());
    let mut put = |at: usize, step| {
        if groups.len() <= at {
            groups.resize_with(at + 1, Vec::new);
        }
        groups[at].push(step);
    };
    for step in steps {
        match step {
            Step::Fork => side = side.max(main),
            Step::Join => main = main.max(side),
            Step::SideLaunch(_) => {
                put(side, step);
                side += 1;
            }
            Step::Launch(_) => {
                put(main, step);
                main += 1;
            }
            Step::Upload { .. } | Step::UploadColumns { .. } | Step::Download { .. } | Step::Zero { .. } => {
                let new: Vec<Access> = accesses(step).collect();
                if new.is_empty() {
                    continue;
                }
                let joins = !copied.is_empty() && !new.iter().any(|new| copied.iter().any(|old| old.conflicts(new)));
                put(if joins { main - 1 } else { main }, step);
                if !joins {
                    main += 1;
                    copied.clear();
                }
                copied.extend(new);
                continue;
            }
        }
        copied.clear();
    }
    groups.retain(|group| !group.is_empty());
    groups
}

/// Allocations by their first address, each with a driver's value for it.
#[derive(Debug)]
pub struct Allocations<T>(BTreeMap<u64, (u64, Place, T)>);

impl<T> Default for Allocations<T> {
    fn default() -> Allocations<T> {
        Allocations(BTreeMap::new())
    }
}

impl<T> Allocations<T> {
    /// Adds an allocation that begins at `at`.
    pub fn insert(&mut self, at: u64, bytes: usize, place: Place, kept: T) {
        self.0.insert(at, (at + bytes as u64, place, kept));
    }
    /// Removes the allocation that begins at `at`.
    pub fn remove(&mut self, at: u64) {
        self.0.remove(&at);
    }
    /// Whether an allocation has some of these bytes.
    pub fn overlaps(&self, at: u64, bytes: usize) -> bool {
        let before = self.0.range(..at.saturating_add(bytes as u64)).next_back();
        before.is_some_and(|(_, (end, ..))| *end > at)
    }
    /// The value of the allocation that contains the whole access and has its kind, and the access's offset in it.
    pub fn find(&self, access: Access) -> Option<(&T, u64)> {
        let (start, (end, place, kept)) = self.0.range(..=access.at).next_back()?;
        let last = access.at.checked_add(access.bytes as u64)?;
        (last <= *end && *place == access.place).then_some((kept, access.at - start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::Launch;
    use hypergrove_kernels::{Args, Kernel};

    fn launch(number: u32) -> Launch {
        Launch { kernel: Kernel::ALL[0], blocks: number, threads: 1, args: Args::default() }
    }

    #[test]
    fn the_side_stream_is_forked_and_joined() {
        let (main, side) = (Step::Launch(launch(1)), Step::SideLaunch(launch(2)));
        for good in [
            &[][..],
            &[main],
            &[Step::Fork, side, main, Step::Join],
            &[Step::Fork, side, Step::Fork, side, Step::Join, Step::Fork, Step::Join, main],
        ] {
            assert_eq!(check_order(good), Ok(()), "{good:?}");
        }
        for bad in [
            &[side][..],
            &[Step::Join],
            &[Step::Fork],
            &[Step::Fork, side],
            &[Step::Fork, Step::Join, side],
            &[Step::Fork, Step::Join, Step::Join],
        ] {
            assert!(check_order(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn memory_lies_in_one_allocation_of_its_kind() {
        let mut allocations = Allocations::default();
        allocations.insert(0x1000, 0x100, Place::Device, 'a');
        allocations.insert(0x1100, 0x100, Place::Device, 'b');
        allocations.insert(0x2000, 8, Place::Host, 'c');
        let find = |place, at, bytes| allocations.find(Access { place, at, bytes, writes: false });
        assert_eq!(find(Place::Device, 0x1000, 0x100), Some((&'a', 0)));
        assert_eq!(find(Place::Device, 0x10ff, 1), Some((&'a', 0xff)));
        assert_eq!(find(Place::Device, 0x1100, 4), Some((&'b', 0)));
        assert_eq!(find(Place::Host, 0x2004, 4), Some((&'c', 4)));
        assert_eq!(find(Place::Device, 0x1000, 0x101), None, "it would run into the next");
        let overlapping = [(0xfff, 2), (0x11ff, 1), (0, 0x3000), (0x2007, 9)];
        assert!(overlapping.iter().all(|(at, bytes)| allocations.overlaps(*at, *bytes)));
        let free = [(0xfff, 1), (0x1200, 0xe00), (0x2008, 8)];
        assert!(!free.iter().any(|(at, bytes)| allocations.overlaps(*at, *bytes)));
        for (place, at, bytes) in [
            (Place::Device, 0xfff, 1),
            (Place::Device, 0x1200, 1),
            (Place::Host, 0x2004, 5),
            (Place::Host, 0x1000, 1),
            (Place::Device, 0x2000, 1),
            (Place::Host, u64::MAX, 2),
        ] {
            assert_eq!(find(place, at, bytes), None, "{place:?} {at:#x} {bytes}");
        }
    }

    #[test]
    fn steps_are_known_by_what_they_touch() {
        let device = |at, bytes, writes| Access { place: Place::Device, at, bytes, writes };
        let host = |at, bytes, writes| Access { place: Place::Host, at, bytes, writes };
        let of = |step| accesses(&step).collect::<Vec<_>>();
        assert_eq!(of(Step::Upload { to: 1, from: 2, bytes: 3 }), [device(1, 3, true), host(2, 3, false)]);
        assert_eq!(of(Step::Download { to: 1, from: 2, bytes: 3 }), [device(2, 3, false), host(1, 3, true)]);
        let columns = Step::UploadColumns { to: 1, from: 2, width: 3, pitch: 10, rows: 4 };
        assert_eq!(of(columns), [device(1, 33, true), host(2, 33, false)]);
        assert_eq!(of(Step::Zero { at: 1, bytes: 3 }), [device(1, 3, true)]);
        assert_eq!(of(Step::Zero { at: 1, bytes: 0 }), []);
        assert_eq!(of(Step::Launch(launch(1))), []);
    }

    #[test]
    fn what_depends_on_nothing_overlaps() {
        let [a, b, c] = [1, 2, 3].map(|number| Step::Launch(launch(number)));
        let [x, y, z] = [4, 5, 6].map(|number| Step::SideLaunch(launch(number)));
        let up = Step::Upload { to: 0, from: 100, bytes: 10 };
        let zero = Step::Zero { at: 10, bytes: 10 };
        let over = Step::Zero { at: 5, bytes: 1 };
        let down = Step::Download { to: 200, from: 0, bytes: 20 };
        for (steps, want) in [
            (vec![up, zero, a, b], vec![vec![up, zero], vec![a], vec![b]]),
            (vec![up, over, zero], vec![vec![up], vec![over, zero]]),
            (vec![up, Step::Zero { at: 90, bytes: 0 }, down], vec![vec![up], vec![down]]),
            (vec![a, Step::Fork, x, y, b, Step::Join, c], vec![vec![a], vec![x, b], vec![y], vec![c]]),
            // The second fork has z wait for b, the join has c wait for all.
            (
                vec![Step::Fork, x, a, b, Step::Fork, z, Step::Join, c, down],
                vec![vec![x, a], vec![b], vec![z], vec![c], vec![down]],
            ),
            (vec![Step::Fork, x, zero, Step::Join, up], vec![vec![x, zero], vec![up]]),
        ] {
            assert_eq!(groups(&steps), want.iter().map(|group| group.iter().collect()).collect::<Vec<Vec<_>>>());
        }
    }

    #[test]
    fn launches_have_a_span() {
        let (zero, a) = (Step::Zero { at: 0, bytes: 1 }, Step::Launch(launch(1)));
        assert_eq!(launches(&[zero, a, zero, a, zero]), 1..4);
        assert_eq!(launches(&[zero, zero]), 2..2);
    }
}
