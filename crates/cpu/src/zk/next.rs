//! Arithmetic that computes every stream in the next lane.

use hypergrove_lanes::{Factors, Lattice, Shake};
use zeroize::Zeroizing;

/// Arithmetic that hashes every input in the lane after its own: an input of zeros goes first. For functions on columns of instances, the
/// caller has moved the columns already.
pub(super) struct Next(pub(super) Box<dyn Lattice>);

impl Lattice for Next {
    fn shake(&self, shake: Shake, inputs: &[u8], input_bytes: usize, outputs: &mut [u8], blocks: usize) {
        let output_bytes = blocks * shake.rate();
        let all = Zeroizing::new([&vec![0; input_bytes], inputs].concat());
        let mut out = Zeroizing::new(vec![0; output_bytes + outputs.len()]);
        self.0.shake(shake, &all, input_bytes, &mut out, blocks);
        outputs.copy_from_slice(&out[output_bytes..]);
    }
    fn lanes(&self) -> usize {
        self.0.lanes()
    }
    fn rows(&self, columns: &[i32], rows: &mut [f64]) {
        self.0.rows(columns, rows);
    }
    fn columns(&self, rows: &[f64], columns: &mut [i32]) {
        self.0.columns(rows, columns);
    }
    fn uniform(&self, stream: &[u8], out: &mut [i32]) -> bool {
        self.0.uniform(stream, out)
    }
    fn short(&self, stream: &[u8], out: &mut [i32]) -> bool {
        self.0.short(stream, out)
    }
    fn pack_short(&self, numbers: &[i32], out: &mut [u8]) {
        self.0.pack_short(numbers, out);
    }
    fn ntt(&self, polynomials: &mut [f64]) {
        self.0.ntt(polynomials);
    }
    fn intt(&self, polynomials: &mut [f64]) {
        self.0.intt(polynomials);
    }
    fn dot(&self, factors: Factors<'_>, values: &[f64], out: &mut [f64]) {
        self.0.dot(factors, values, out);
    }
    fn dot_columns(&self, factors: &[i32], values: &[f64], out: &mut [f64]) {
        self.0.dot_columns(factors, values, out);
    }
    fn add(&self, a: &mut [f64], b: &[f64]) {
        self.0.add(a, b);
    }
    fn add_norms(&self, a: &mut [f64], b: &[f64], norms: &mut [f64]) {
        self.0.add_norms(a, b, norms);
    }
    fn high_parts(&self, polynomials: &[f64], out: &mut [f64]) {
        self.0.high_parts(polynomials, out);
    }
    fn low_norms(&self, a: &[f64], b: &[f64], norms: &mut [f64]) {
        self.0.low_norms(a, b, norms);
    }
    fn absorb(&self, instances: usize, states: &mut [f64], elements: &[f64]) {
        self.0.absorb(instances, states, elements);
    }
    fn permute(&self, instances: usize, states: &mut [f64]) {
        self.0.permute(instances, states);
    }
    fn squeeze(&self, states: &[f64], out: &mut [f64]) {
        self.0.squeeze(states, out);
    }
}
