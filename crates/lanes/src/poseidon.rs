//! Poseidon over q = 7340033, t = 35, in lanes: 21 full rounds of x ↦ 1/x and a Hankel matrix.
//!
//! No round inverts anything. A state is 35 numerators nᵢ over one denominator d. With vᵢ = nᵢ + kᵢ·d, kᵢ the round
//! constant, and P = ∏ vⱼ, the S-box gives
//!
//! ```text
//! 1/(nᵢ/d + kᵢ) = d/vᵢ = (d·∏_{j≠i} vⱼ) / P:
//! ```
//!
//! numerators over the next denominator P, and the matrix is linear. A product tree makes the products; d goes in at
//! its root. Squeezing does the only inversion of a whole sponge.

use crate::field::{Q, mul, reduce, reduce_all};
use crate::lattice::Rows;
use crate::simd::{Doubles, array};

/// Cells of a state.
pub(crate) const T: usize = 35;
/// Rows of a state: its cells and their denominator.
pub(crate) const STATE: usize = T + 1;
/// Cells that absorb.
pub(crate) const RATE: usize = 24;
pub(crate) const ROUNDS: usize = 21;

/// Round constants, and the matrix cut into parts.
pub(crate) struct Tables {
    /// One row for each round, centred.
    round_constants: Box<[[f64; T]]>,
    matrix: Box<[[[f64; 5]; 6]; 9]>,
    alone: Alone,
}

impl Tables {
    /// Tables from the round constants, 35 a round, the factors of the matrix, five of each leaf, and its antidiagonals.
    pub(crate) fn new(round_constants: &[u32], matrix: &[u32], antidiagonals: &[u32]) -> Tables {
        assert_eq!((round_constants.len(), matrix.len(), antidiagonals.len()), (ROUNDS * T, 9 * 6 * 5, 2 * T - 1));
        let centre = |x: u32| reduce(f64::from(x));
        let rows: Box<[[f64; T]]> = round_constants.chunks(T).map(|row| array!(|i| centre(row[i]))).collect();
        let factor = |b: usize, l: usize, k: usize| centre(matrix[(6 * b + l) * 5 + k]);
        let alone = Alone::new(&rows, |i, j| centre(antidiagonals[i + j]));
        Tables { round_constants: rows, matrix: Box::new(array!(|b| array!(|l| array!(|k| factor(b, l, k))))), alone }
    }
}

/// Cells, denominator, and padding that fills the last vector.
const PADDED: usize = STATE.next_multiple_of(8);

/// Tables for one state alone, whose cells are adjacent.
struct Alone {
    /// The constants of each round, and zeros.
    constants: Rows,
    /// The matrix column by column, with a 36th that keeps the denominator.
    columns: Rows,
    /// The matrix' products are added to these: unused cells are ones, so that every lane runs the same product tree.
    padding: Rows,
}

impl Alone {
    fn new(round_constants: &[[f64; T]], matrix: impl Fn(usize, usize) -> f64) -> Alone {
        let mut alone = Alone {
            constants: Rows::new(ROUNDS, PADDED),
            columns: Rows::new(STATE, PADDED),
            padding: Rows::new(1, PADDED),
        };
        for (row, constants) in alone.constants.chunks_exact_mut(PADDED).zip(round_constants) {
            row[..T].copy_from_slice(constants);
        }
        for (j, column) in alone.columns.chunks_exact_mut(PADDED).enumerate() {
            for (i, x) in column.iter_mut().enumerate() {
                *x = match (i, j) {
                    (0..T, 0..T) => matrix(i, j),
                    (T, T) => 1.0,
                    _ => 0.0,
                };
            }
        }
        alone.padding[STATE..].fill(1.0);
        alone
    }
}

/// Replaces a zero in the product tree: it is 1 mod q, and is recognised later, since it is larger than any reduced element.
const ONE_FOR_ZERO: f64 = Q + 1.0;

/// H·x + y for a 3 × 3 matrix H.
#[inline(always)]
fn leaf<V: Doubles>(h: &[f64; 5], x: [V; 3], y: Option<[V; 3]>) -> [V; 3] {
    let h: [V; 5] = array!(|k| V::splat(h[k]));
    array!(|i| {
        let first = match y {
            Some(y) => h[i].mul_add(x[0], y[i]),
            None => h[i].mul(x[0]),
        };
        h[i + 2].mul_add(x[2], h[i + 1].mul_add(x[1], first))
    })
}

#[inline(always)]
fn sum<V: Doubles, const N: usize>(a: [V; N], b: [V; N]) -> [V; N] {
    array!(|i| a[i].add(b[i]))
}

/// H·x for a 9 × 9 matrix H, by six products of thirds.
#[inline(always)]
fn ninth<V: Doubles>(h: &[[f64; 5]; 6], x: &[V; 9]) -> [V; 9] {
    let x: [[V; 3]; 3] = array!(|i| [x[3 * i], x[3 * i + 1], x[3 * i + 2]]);
    let p01 = leaf(&h[0], sum(x[0], x[1]), None);
    let p02 = leaf(&h[1], sum(x[0], x[2]), None);
    let p12 = leaf(&h[2], sum(x[1], x[2]), None);
    let y0 = leaf(&h[3], x[0], Some(sum(p01, p02)));
    let y1 = leaf(&h[4], x[1], Some(sum(p01, p12)));
    let y2 = leaf(&h[5], x[2], Some(sum(p02, p12)));
    array!(|i| [y0, y1, y2][i / 3][i % 3])
}

/// Computes M·x in place, for one of the vectors of each row, by halves of halves, then by thirds.
#[inline(always)]
fn matrix<V: Doubles>(h: &[[[f64; 5]; 6]; 9], stride: usize, x: &mut [V]) {
    let load = |i: usize| -> [V; 9] { array!(|k| x[(9 * i + k) * stride]) };
    let parts = [load(0), load(1), load(2), load(3)];
    let mut store = |i: usize, part: [V; 9]| {
        for k in 0..9 {
            x[(9 * i + k) * stride] = part[k];
        }
    };
    let x = parts;
    let (x02, x13) = (sum(x[0], x[2]), sum(x[1], x[3]));
    let both = ninth(&h[0], &sum(x02, x13));
    let (low, high) = (sum(both, ninth(&h[1], &x02)), sum(both, ninth(&h[2], &x13)));
    let both = ninth(&h[3], &sum(x[0], x[1]));
    store(0, sum(sum(low, both), ninth(&h[4], &x[0])));
    store(1, sum(sum(high, both), ninth(&h[5], &x[1])));
    let both = ninth(&h[6], &sum(x[2], x[3]));
    store(2, sum(sum(low, both), ninth(&h[7], &x[2])));
    store(3, sum(sum(high, both), ninth(&h[8], &x[3])));
}

#[inline(always)]
fn zero_for_zero<V: Doubles>(inverse: V, of: V) -> V {
    inverse.clear(of.equals(V::splat(ONE_FOR_ZERO)))
}

/// Nodes that the tree's loops compute in parallel: with two vectors each, sixteen registers hold no more.
const ABREAST: usize = 3;

#[inline(always)]
fn down<V: Doubles, const N: usize>(tree: &mut [V; 2 * STATE], first: usize, leaves: bool) {
    let left: [V; N] = array!(|k| tree[2 * (first + k)]);
    let right: [V; N] = array!(|k| tree[2 * (first + k) + 1]);
    let above: [V; N] = array!(|k| tree[first + k]);
    let mut a = reduce_all::<V, N>(&array!(|k| above[k].mul(right[k])));
    let mut b = reduce_all::<V, N>(&array!(|k| above[k].mul(left[k])));
    for k in 0..N {
        if leaves {
            a[k] = zero_for_zero(a[k], left[k]);
            b[k] = zero_for_zero(b[k], right[k]);
        }
        tree[2 * (first + k)] = a[k];
        tree[2 * (first + k) + 1] = b[k];
    }
}

#[inline(always)]
pub(crate) fn permute<V: Doubles>(tables: &Tables, state: &mut [V; STATE]) {
    // Node i is the product of nodes 2i and 2i + 1; the leaves are the 35 v and d, from node 36 on. Going down, a node
    // becomes the product of all leaves that are not below it.
    let mut tree = [V::splat(0.0); 2 * STATE];
    tree[STATE..].copy_from_slice(state);
    for constants in &tables.round_constants {
        let d = tree[2 * STATE - 1];
        for i in (0..T).step_by(5) {
            let v = reduce_all::<V, 5>(&array!(|k| d.mul_add(V::splat(constants[i + k]), tree[STATE + i + k])));
            for k in 0..5 {
                tree[STATE + i + k] = v[k].replace(v[k].is_zero(), V::splat(ONE_FOR_ZERO));
            }
        }
        for first in (3..STATE).step_by(ABREAST).rev() {
            let products = reduce_all::<V, ABREAST>(&array!(|k| tree[2 * (first + k)].mul(tree[2 * (first + k) + 1])));
            tree[first..first + ABREAST].copy_from_slice(&products);
        }
        (tree[2], tree[3]) = (tree[3], mul(tree[4], tree[5]));
        down::<V, 1>(&mut tree, 2, false);
        for first in (3..STATE / 2).step_by(ABREAST) {
            down::<V, ABREAST>(&mut tree, first, false);
        }
        for first in (STATE / 2..STATE).step_by(ABREAST) {
            down::<V, ABREAST>(&mut tree, first, true);
        }
        let d = tree[2 * STATE - 1];
        tree[2 * STATE - 1] = V::splat(0.0);
        let stride = V::LANES / V::Vector::LANES;
        for i in 0..stride {
            matrix(&tables.matrix, stride, &mut V::vectors_mut(&mut tree[STATE..])[i..]);
        }
        tree[2 * STATE - 1] = d;
    }
    state.copy_from_slice(&tree[STATE..]);
}

/// The 36 rows of one state, aligned for vectors, and ones as padding.
#[repr(align(64))]
pub(crate) struct AloneState([f64; PADDED]);

impl AloneState {
    #[inline(always)]
    pub(crate) fn new(rows: impl Iterator<Item = f64>) -> AloneState {
        let mut state = [1.0; PADDED];
        state.iter_mut().zip(rows.take(STATE)).for_each(|(cell, row)| *cell = row);
        AloneState(state)
    }
    #[inline(always)]
    pub(crate) fn absorb(&mut self, block: impl Iterator<Item = f64>) {
        let d = self.0[T];
        self.0.iter_mut().zip(block).for_each(|(cell, element)| *cell += element * d);
    }
    #[inline(always)]
    pub(crate) fn rows(&self) -> &[f64] {
        &self.0[..STATE]
    }
}

/// Permutes one state, whose cells are spread over the lanes of vectors. That takes less time than in one lane, where its operations cost as
/// much as those of all lanes. The tree is that of [`permute`], but of vectors, and its root is multiplied by the other lanes.
#[inline(always)]
pub(crate) fn permute_alone<V: Doubles>(tables: &Tables, state: &mut AloneState) {
    match V::LANES {
        8 => alone_in::<V, 5>(&tables.alone, state),
        4 => alone_in::<V, 9>(&tables.alone, state),
        2 => alone_in::<V, 18>(&tables.alone, state),
        lanes => unreachable!("{lanes} lanes: one is alone as it is"),
    }
}

#[inline(always)]
fn alone_in<V: Doubles, const VECTORS: usize>(tables: &Alone, state: &mut AloneState) {
    let (x, row) = (&mut state.0, PADDED / V::LANES);
    let (matrix, padding) = (V::of(&tables.columns), V::of(&tables.padding));
    let padding: [V; VECTORS] = array!(|i| padding[i]);
    for constants in V::of(&tables.constants).chunks_exact(row) {
        let d = V::splat(x[T]);
        let v: [V; VECTORS] = reduce_all(&array!(|i| d.mul_add(constants[i], V::of(x)[i])));
        let leaves: [V; VECTORS] = array!(|i| v[i].replace(v[i].is_zero(), V::splat(ONE_FOR_ZERO)));
        // As in `permute`: nodes 1 to VECTORS − 1, then the leaves.
        let (mut nodes, mut out) = (leaves, leaves);
        macro_rules! node {
            ($i:expr) => {
                if $i < VECTORS { &mut nodes[$i] } else { &mut out[$i - VECTORS] }
            };
        }
        for i in (1..VECTORS).rev() {
            nodes[i] = mul(*node!(2 * i), *node!(2 * i + 1));
        }
        // Each lane gets the product of all lanes but its own. (With one lane that is the whole product: a factor that all rows share does not matter.)
        let (mut product, mut distance) = (nodes[1], 1);
        while distance < V::LANES {
            let other = product.swap(distance);
            nodes[1] = if distance == 1 { other } else { mul(nodes[1], other) };
            product = mul(product, other);
            distance *= 2;
        }
        for i in 1..VECTORS {
            let (above, left, right) = (nodes[i], *node!(2 * i), *node!(2 * i + 1));
            *node!(2 * i) = mul(above, right);
            *node!(2 * i + 1) = mul(above, left);
        }
        for i in 0..VECTORS {
            V::of_mut(x)[i] = zero_for_zero(out[i], leaves[i]);
        }
        let y = if VECTORS < 8 {
            // These two sums do not wait for each other. More vectors hide the latency themselves, and fill the registers.
            let ((low, high), (left, right)) = (x[..STATE].split_at(STATE / 2), matrix.split_at(STATE / 2 * row));
            sum(columns(left, low, padding), columns(right, high, [V::splat(0.0); VECTORS]))
        } else {
            columns(matrix, &x[..STATE], padding)
        };
        V::of_mut(x)[..VECTORS].copy_from_slice(&y);
    }
}

/// Adds columns times x to `sum`.
#[inline(always)]
fn columns<V: Doubles, const VECTORS: usize>(matrix: &[V], x: &[f64], mut sum: [V; VECTORS]) -> [V; VECTORS] {
    for (x, column) in x.iter().zip(matrix.chunks_exact(PADDED / V::LANES)) {
        for i in 0..VECTORS {
            sum[i] = column[i].mul_add(V::splat(*x), sum[i]);
        }
    }
    sum
}
