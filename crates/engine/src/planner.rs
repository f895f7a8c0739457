//! Cuts an endless stream of jobs into sub-batches: large enough to keep lanes and threads busy, small enough for the
//! memory budget and for results to come out soon.

use crate::Error;
use crate::scheme::{Group, bucket};
use std::collections::VecDeque;
use std::time::Duration;

/// The limits of a sub-batch.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bounds {
    /// Bytes of the program, and of every job's output and own memory.
    pub memory: u64,
    /// Jobs.
    pub jobs: usize,
    /// Predicted time; but `least` jobs are taken together even if they take longer.
    pub time: Duration,
    /// Jobs that suffice to keep the device busy.
    pub least: usize,
}

/// Successive rows of one kind, as the scheduler sees them.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// The group whose program does the rows, or why none can.
    pub group: Result<Group, Error>,
    /// Bytes that the rows and their results take while they are worked on.
    pub held: u64,
    /// The number of rows.
    pub count: usize,
}

impl Block {
    /// Cuts so many rows off the front, if all rows hold as many bytes.
    pub fn split(&self, rows: usize) -> (Block, Block) {
        let held = (u128::from(self.held) * rows as u128 / self.count as u128) as u64;
        let back = Block { held: self.held - held, count: self.count - rows, ..self.clone() };
        (Block { held, count: rows, ..self.clone() }, back)
    }
}

/// Weighs groups for the planner, on the device that the sub-batch is for.
pub trait Weigh {
    /// Whether the device executes this group.
    fn takes(&self, group: Group) -> bool;
    /// Rows of this group that one program takes.
    fn most(&self, group: Group) -> usize;
    /// Bytes of the program for up to `rows` rows of a group.
    fn program(&self, group: Group, rows: usize) -> u64;
    /// Predicted time of one row in a full sub-batch.
    fn seconds(&self, group: Group) -> f64;
}

/// Cuts so many rows, or about so many, off the front of the block whose first row has this number. Returns both parts, neither of them empty;
/// `None` if these rows stay together.
pub type Cut<'c> = &'c dyn Fn(usize, &Block, usize) -> Option<(Block, Block)>;

/// An output of [`SubBatches`], each block with the number of its first row.
#[derive(Debug, PartialEq)]
pub enum SubBatch {
    /// Blocks to be worked on together, their rows without gaps, and the bytes that they and their results take.
    Run(Vec<(usize, Block)>, u64),
    /// A block that exceeds the memory by itself and cannot be cut, and the bytes that it needs.
    TooLarge(usize, Block, u64),
}

/// A stream of rows in blocks, which is cut into sub-batches. It takes at most one block more from its source than it gives out. The source may have no
/// block now and another one later. By `size_hint` it says how many rows are left at most.
pub struct SubBatches<I> {
    source: I,
    /// The number of the first row of the source's next block.
    next: usize,
    /// Blocks that were taken from the source and not given out, or were given back, in order.
    waiting: VecDeque<(usize, Block)>,
}

/// The rows of one group in the sub-batch that is being filled.
struct GroupRows {
    group: Group,
    rows: usize,
    /// The most that one program takes.
    most: usize,
    /// Seconds a row.
    seconds: f64,
    /// Bytes of the program for bucket(rows) rows.
    program: u64,
}

/// A sub-batch that is being filled.
struct Filling {
    blocks: Vec<(usize, Block)>,
    groups: Vec<GroupRows>,
    rows: usize,
    held: u64,
}

/// Where time or memory limits the rows, they are a multiple of this number, so that few lanes of a CPU stay empty.
const LANES: usize = 16;

impl Filling {
    /// The index of the group's rows, which may be none so far. `None` if the device does not execute the group.
    fn group(&mut self, weigh: &dyn Weigh, group: Group) -> Option<usize> {
        if let Some(at) = self.groups.iter().position(|of| of.group == group) {
            return Some(at);
        }
        let (seconds, most) = (weigh.seconds(group), weigh.most(group));
        weigh.takes(group).then(|| {
            self.groups.push(GroupRows { group, rows: 0, most, seconds, program: 0 });
            self.groups.len() - 1
        })
    }

    /// Seconds of all rows.
    fn seconds(&self) -> f64 {
        self.groups.iter().map(|of| of.rows as f64 * of.seconds).sum()
    }

    /// Bytes that are needed with `rows` more rows, which hold so many bytes, of the group with this index. Programs run one after the other, so the
    /// largest one counts.
    fn needs(&self, weigh: &dyn Weigh, at: Option<usize>, rows: usize, held: u64) -> u64 {
        let of = |(nth, of): (usize, &GroupRows)| match at {
            Some(at) if at == nth && (of.rows == 0 || bucket(of.rows) != bucket(of.rows + rows)) => {
                weigh.program(of.group, bucket(of.rows + rows))
            }
            _ => of.program,
        };
        let programs = self.groups.iter().enumerate().map(of).max().unwrap_or(0);
        self.held.saturating_add(held).saturating_add(programs)
    }

    /// How many rows of a block suit this sub-batch, one at least: the block is cut if it has more.
    fn share(&self, weigh: &dyn Weigh, bounds: &Bounds, at: usize, block: &Block) -> usize {
        let of = &self.groups[at];
        let of_time = ((bounds.time.as_secs_f64() - self.seconds()) / of.seconds).ceil();
        let of_time = (of_time as usize).max(bounds.least.saturating_sub(self.rows));
        let most = block.count.min(bounds.jobs - self.rows).min(of.most.saturating_sub(of.rows)).max(1);
        let mut rows = most.min(of_time.max(1));
        let held = |rows: usize| (u128::from(block.held) * rows as u128).div_ceil(block.count as u128) as u64;
        let fits = |rows: usize| self.needs(weigh, Some(at), rows, held(rows)) <= bounds.memory;
        if !fits(rows) {
            // The most rows that fit, or one.
            let mut too_many = rows;
            rows = 1;
            while too_many - rows > 1 {
                let middle = rows.midpoint(too_many);
                if fits(middle) { rows = middle } else { too_many = middle }
            }
        }
        let in_lanes = rows - rows % LANES;
        if rows < most && in_lanes > 0 && self.rows + in_lanes >= bounds.least { in_lanes } else { rows }
    }
}

impl<I: Iterator<Item = Block>> SubBatches<I> {
    /// A stream that takes its blocks from `source`.
    pub fn new(source: I) -> SubBatches<I> {
        SubBatches { source, next: 0, waiting: VecDeque::new() }
    }

    /// The next block of those that were taken from the source already.
    pub fn waiting(&self) -> Option<&(usize, Block)> {
        self.waiting.front()
    }

    fn take(&mut self) -> Option<(usize, Block)> {
        let block = self.source.next()?;
        let first = self.next;
        self.next += block.count;
        Some((first, block))
    }

    /// The next block, which stays in the stream.
    pub fn peek(&mut self) -> Option<&(usize, Block)> {
        if self.waiting.is_empty() {
            let next = self.take();
            self.waiting.extend(next);
        }
        self.waiting.front()
    }

    /// Takes the next block out of the stream.
    pub fn pop(&mut self) -> Option<(usize, Block)> {
        self.waiting.pop_front().or_else(|| self.take())
    }

    /// The most rows that are left in the stream, if the source says how many it has left at most.
    pub fn left(&self) -> Option<usize> {
        let waiting: usize = self.waiting.iter().map(|(_, block)| block.count).sum();
        self.source.size_hint().1.map(|left| left.saturating_add(waiting))
    }

    /// The number of rows that were taken from the source and not given out.
    pub fn rows_waiting(&self) -> usize {
        self.waiting.iter().map(|(_, block)| block.count).sum()
    }

    /// Takes blocks back that were given out, to be given out again. They follow each other, as [`cut`](SubBatches::cut) gives them.
    pub fn give_back(&mut self, blocks: Vec<(usize, Block)>) {
        let Some((first, _)) = blocks.first() else { return };
        let at = self.waiting.partition_point(|(other, _)| other < first);
        let later = self.waiting.split_off(at);
        self.waiting.extend(blocks);
        self.waiting.extend(later);
    }

    /// The next sub-batch, whose rows follow each other: between them there can be rows that are still given out. Its last block is cut where it suits.
    /// `TooLarge` if the first block exceeds the memory by itself and cannot be cut. `None` if there are no more rows, or the next ones are not for this
    /// device.
    pub fn cut(&mut self, weigh: &dyn Weigh, cut: Cut<'_>, bounds: Bounds) -> Option<SubBatch> {
        let mut filling = Filling { blocks: Vec::new(), groups: Vec::new(), rows: 0, held: 0 };
        while let Some((first, mut block)) = self.pop() {
            let follows = filling.blocks.last().is_none_or(|(last, block)| last + block.count == first);
            // A block without a group is a bad one, whose error is its result: it fits anywhere.
            let group = block.group.as_ref().ok().filter(|_| follows).copied();
            let at = group.map(|group| filling.group(weigh, group));
            let mut is_cut = false;
            if let Some(Some(at)) = at {
                // A block may hold more bytes for some rows than for others, so it is weighed again when it was cut.
                while let rows @ 1.. = filling.share(weigh, &bounds, at, &block)
                    && rows < block.count
                    && let Some((front, back)) = cut(first, &block, rows)
                {
                    self.waiting.push_front((first + front.count, back));
                    (block, is_cut) = (front, true);
                }
            }
            let is_too_many = filling.rows > 0 && block.count > bounds.jobs - filling.rows;
            let at = at.flatten();
            let of = at.map(|at| &filling.groups[at]);
            // A single block fits, however many rows it has.
            let is_full = of.is_some_and(|of| of.rows > 0 && of.rows + block.count > of.most);
            if !follows || is_too_many || is_full || (at.is_none() && block.group.is_ok()) {
                self.waiting.push_front((first, block));
                break;
            }
            let needs = filling.needs(weigh, at, block.count, block.held);
            if needs > bounds.memory {
                if filling.blocks.is_empty() {
                    return Some(SubBatch::TooLarge(first, block, needs));
                }
                self.waiting.push_front((first, block));
                break;
            }
            filling.held = filling.held.saturating_add(block.held);
            filling.rows += block.count;
            let mut is_full = false;
            if let Some(of) = at.map(|at| &mut filling.groups[at]) {
                if of.rows == 0 || bucket(of.rows) != bucket(of.rows + block.count) {
                    of.program = weigh.program(of.group, bucket(of.rows + block.count));
                }
                of.rows += block.count;
                is_full = of.rows >= of.most;
            }
            filling.blocks.push((first, block));
            let is_long = filling.seconds() >= bounds.time.as_secs_f64() && filling.rows >= bounds.least;
            if is_cut || is_full || is_long || filling.rows >= bounds.jobs {
                break;
            }
        }
        (!filling.blocks.is_empty()).then_some(SubBatch::Run(filling.blocks, filling.held))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheme::Kind;
    use std::cell::Cell;

    /// A program takes 100 bytes and 10 a row; a row of group 9 takes a second, others none; two rows of group 7 fill a program; the device declines
    /// group 8. Blocks of group 6 are cut; their rows hold 10 bytes, but for row 0, which holds the rest.
    struct Fake;
    impl Weigh for Fake {
        fn takes(&self, group: Group) -> bool {
            group.kind.op != 8
        }
        fn most(&self, group: Group) -> usize {
            if group.kind.op == 7 { 2 } else { usize::MAX }
        }
        fn program(&self, _: Group, rows: usize) -> u64 {
            assert!(rows.is_power_of_two());
            100 + 10 * rows as u64
        }
        fn seconds(&self, group: Group) -> f64 {
            f64::from(u8::from(group.kind.op == 9))
        }
    }

    fn cut(_: usize, block: &Block, rows: usize) -> Option<(Block, Block)> {
        assert!((1..block.count).contains(&rows), "no part is empty");
        let back = Block { count: block.count - rows, held: 10 * (block.count - rows) as u64, ..block.clone() };
        let front = Block { count: rows, held: block.held - back.held, ..block.clone() };
        (block.group == Ok(group(6))).then_some((front, back))
    }

    fn group(op: u8) -> Group {
        Group { kind: Kind { op, ..Kind::sha256(0) }, threads: 1 }
    }

    /// A row of a group, or a bad one of group 0.
    fn row((op, held): (u8, u64)) -> Block {
        let bad = Error::Value { what: "a bad row".into() };
        Block { group: if op > 0 { Ok(group(op)) } else { Err(bad) }, held, count: 1 }
    }

    fn stream(rows: &[(u8, u64)]) -> SubBatches<impl Iterator<Item = Block>> {
        SubBatches::new(rows.iter().copied().map(row))
    }

    const UNBOUNDED: Bounds = Bounds { memory: u64::MAX, jobs: usize::MAX, time: Duration::MAX, least: 1 };

    fn sizes(jobs: &[(u8, u64)], bounds: Bounds) -> Vec<usize> {
        let (mut next, mut subs) = (0, stream(jobs));
        std::iter::from_fn(|| subs.cut(&Fake, &cut, bounds))
            .map(|sub| {
                let (indices, size): (Vec<usize>, usize) = match sub {
                    SubBatch::Run(jobs, held) => {
                        assert_eq!(held, jobs.iter().map(|(_, job)| job.held).sum::<u64>());
                        (jobs.iter().map(|(i, _)| *i).collect(), jobs.len())
                    }
                    SubBatch::TooLarge(index, ..) => (vec![index], 0),
                };
                assert_eq!(indices, (next..next + indices.len()).collect::<Vec<_>>(), "every job once, in order");
                next += indices.len();
                size
            })
            .collect()
    }

    #[test]
    fn memory_jobs_and_time_bound_a_sub_batch() {
        assert_eq!(sizes(&[], UNBOUNDED), [0; 0]);
        assert_eq!(sizes(&[(1, 5); 7], UNBOUNDED), [7]);
        assert_eq!(sizes(&[(1, 5); 7], Bounds { jobs: 3, ..UNBOUNDED }), [3, 3, 1]);
        // 100 + 10·4 + 4·5 = 160 fits; the fifth job needs a program for eight.
        assert_eq!(sizes(&[(1, 5); 7], Bounds { memory: 160, ..UNBOUNDED }), [4, 3]);
        assert_eq!(sizes(&[(1, 5); 7], Bounds { memory: 159, ..UNBOUNDED }), [3, 3, 1]);
        assert_eq!(sizes(&[(9, 0); 7], Bounds { time: Duration::from_secs(2), ..UNBOUNDED }), [2, 2, 2, 1]);
        assert_eq!(sizes(&[(9, 0); 7], Bounds { time: Duration::from_secs(2), least: 4, ..UNBOUNDED }), [4, 3]);
    }

    #[test]
    fn groups_share_the_budget_and_bad_jobs_cost_no_program() {
        // Two programs of two jobs each, one after the other: 120 bytes, not 240.
        assert_eq!(sizes(&[(1, 0), (2, 0), (1, 0), (2, 0)], Bounds { memory: 120, ..UNBOUNDED }), [4]);
        assert_eq!(sizes(&[(0, 50), (0, 50), (0, 50)], Bounds { memory: 100, ..UNBOUNDED }), [2, 1]);
    }

    #[test]
    fn a_job_too_large_by_itself_is_refused() {
        let jobs = [(1, 1), (1, 900), (1, 1), (1, 900)];
        assert_eq!(sizes(&jobs, Bounds { memory: 200, ..UNBOUNDED }), [1, 0, 1, 0]);
        let mut subs = stream(&jobs);
        let bounds = Bounds { memory: 200, ..UNBOUNDED };
        subs.cut(&Fake, &cut, bounds);
        assert_eq!(subs.cut(&Fake, &cut, bounds), Some(SubBatch::TooLarge(1, row((1, 900)), 1010)));
    }

    #[test]
    fn programs_and_devices_bound_a_sub_batch() {
        assert_eq!(sizes(&[(7, 0); 5], UNBOUNDED), [2, 2, 1]);
        assert_eq!(sizes(&[(7, 0), (1, 0), (1, 0), (7, 0), (1, 0)], UNBOUNDED), [4, 1]);
        // The job that the device declines stays first, for another device.
        let mut subs = stream(&[(1, 0), (1, 0), (8, 0)]);
        assert!(matches!(subs.cut(&Fake, &cut, UNBOUNDED), Some(SubBatch::Run(jobs, 0)) if jobs.len() == 2));
        assert_eq!((subs.cut(&Fake, &cut, UNBOUNDED), subs.waiting()), (None, Some(&(2, row((8, 0))))));
    }

    #[test]
    fn what_is_given_back_comes_again_and_first() {
        let mut subs = SubBatches::new((0..10).map(|i| row((1, i))));
        let bounds = Bounds { jobs: 3, ..UNBOUNDED };
        let next = |subs: &mut SubBatches<_>| match subs.cut(&Fake, &cut, bounds) {
            Some(SubBatch::Run(jobs, _)) => jobs,
            other => panic!("{other:?}"),
        };
        let [first, second, third] = [(); 3].map(|()| next(&mut subs));
        assert_eq!(subs.left(), Some(1));
        subs.give_back(third);
        subs.give_back(first);
        assert_eq!((subs.left(), subs.waiting()), (Some(7), Some(&(0, row((1, 0))))));
        // No sub-batch skips over jobs that are still out.
        let indices = |jobs: Vec<(usize, Block)>| jobs.iter().map(|job| job.0).collect::<Vec<_>>();
        assert_eq!(indices(next(&mut subs)), [0, 1, 2]);
        subs.give_back(second[1..].to_vec());
        assert_eq!(subs.peek(), Some(&(4, row((1, 4)))));
        assert_eq!(indices(next(&mut subs)), [4, 5, 6]);
        assert_eq!(indices(next(&mut subs)), [7, 8, 9]);
        assert_eq!(subs.peek(), None);
        assert_eq!(subs.cut(&Fake, &cut, bounds), None);
    }

    #[test]
    fn blocks_are_cut_to_the_bounds_and_weighed_again() {
        let many = |count, held| Block { group: Ok(group(6)), held, count };
        let parts = |block: &Block, bounds| {
            let mut subs = SubBatches::new([block.clone()].into_iter());
            let counts = std::iter::from_fn(|| match subs.cut(&Fake, &cut, bounds)? {
                SubBatch::Run(blocks, held) => {
                    assert_eq!(held, blocks.iter().map(|(_, block)| block.held).sum::<u64>());
                    Some((blocks[0].0, blocks.iter().map(|(_, block)| block.count).sum()))
                }
                SubBatch::TooLarge(first, block, _) => Some((first, 1000 * block.count)),
            });
            counts.collect::<Vec<_>>()
        };
        assert_eq!(parts(&many(100, 1000), UNBOUNDED), [(0, 100)]);
        assert_eq!(parts(&many(100, 1000), Bounds { jobs: 40, ..UNBOUNDED }), [(0, 40), (40, 40), (80, 20)]);
        // 840 for a program of 64 rows, and 10 a row; a multiple of the lanes.
        assert_eq!(parts(&many(100, 1000), Bounds { memory: 1240, ..UNBOUNDED }), [(0, 48), (48, 48), (96, 4)]);
        // 110 for the program of a row and 40 for the first row; then 140 for the program of four rows, and 10 a row.
        assert_eq!(parts(&many(5, 80), Bounds { memory: 180, ..UNBOUNDED }), [(0, 2), (2, 3)]);
        // The first row alone exceeds the memory.
        assert_eq!(parts(&many(5, 840), Bounds { memory: 500, ..UNBOUNDED }), [(0, 1000), (1, 4)]);
        // The rest of one block goes with the next one.
        let mut subs = SubBatches::new([many(5, 50), many(5, 50)].into_iter());
        let mut next = || match subs.cut(&Fake, &cut, Bounds { jobs: 4, ..UNBOUNDED }) {
            Some(SubBatch::Run(blocks, _)) => blocks.iter().map(|(first, block)| (*first, block.count)).collect(),
            _ => Vec::new(),
        };
        assert_eq!([next(), next(), next(), next()], [vec![(0, 4)], vec![(4, 1), (5, 3)], vec![(8, 2)], vec![]]);
    }

    #[test]
    fn the_source_is_read_no_further_than_needed() {
        let pulled = Cell::new(0);
        let source = (0..1000).map(|_| {
            pulled.set(pulled.get() + 1);
            row((1, 5))
        });
        let mut subs = SubBatches::new(source);
        for round in 1..=10 {
            subs.cut(&Fake, &cut, Bounds { memory: 160, ..UNBOUNDED });
            assert_eq!(pulled.get(), 4 * round + 1);
        }
    }
}
