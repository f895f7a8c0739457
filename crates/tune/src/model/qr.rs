//! Linear least squares of a few columns.

/// Columns of length 1 depend on each other if what one of them has of its own is shorter than this.
const LEAST_PIVOT: f64 = 1e-9;

/// Σ aᵢ bᵢ.
pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// √Σ aᵢ².
pub(super) fn norm(a: &[f64]) -> f64 {
    dot(a, a).sqrt()
}

/// The result of [`solve`].
pub(super) struct Solution {
    /// The x of the least ‖A x − y‖.
    pub(super) x: Vec<f64>,
    /// The rows of R⁻¹, given A = Q R.
    pub(super) inverse: Vec<Vec<f64>>,
}

/// min ‖A x − y‖, given the columns of A. `None` if they depend on each other, which is judged for columns of length 1.
///
/// A = Q R by the modified Gram–Schmidt process, with y as one more column: x is then as accurate as with Householder's reflections (Björck,
/// "Solving linear least squares problems by Gram–Schmidt orthogonalization", BIT 7, 1967).
pub(super) fn solve(mut columns: Vec<Vec<f64>>, y: Vec<f64>) -> Option<Solution> {
    let count = columns.len();
    columns.push(y);
    // The last column of R is Qᵀ y.
    let mut r = vec![vec![0.0; count + 1]; count];
    for j in 0..count {
        r[j][j] = norm(&columns[j]);
        if r[j][j].is_nan() || r[j][j] < LEAST_PIVOT {
            return None;
        }
        let q: Vec<f64> = columns[j].iter().map(|a| a / r[j][j]).collect();
        for l in j + 1..=count {
            let part = dot(&q, &columns[l]);
            r[j][l] = part;
            columns[l].iter_mut().zip(&q).for_each(|(a, q)| *a -= part * q);
        }
    }
    let mut inverse = vec![vec![0.0; count]; count];
    for l in 0..count {
        let unit: Vec<f64> = (0..count).map(|i| f64::from(u8::from(i == l))).collect();
        for (row, value) in inverse.iter_mut().zip(back_substitute(&r, &unit)) {
            row[l] = value;
        }
    }
    let of_y: Vec<f64> = r.iter().map(|row| row[count]).collect();
    Some(Solution { x: back_substitute(&r, &of_y), inverse })
}

/// The x of R x = b, given the rows of an upper triangular R.
fn back_substitute(r: &[Vec<f64>], b: &[f64]) -> Vec<f64> {
    let mut x = vec![0.0; b.len()];
    for i in (0..b.len()).rev() {
        let known: f64 = (i + 1..b.len()).map(|j| r[i][j] * x[j]).sum();
        x[i] = (b[i] - known) / r[i][i];
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;

    /// y = 2 a − 3 b + 0.5 c, whose columns have little of their own.
    #[test]
    fn an_exact_law_is_found() {
        let columns: Vec<Vec<f64>> = vec![
            vec![1.0; 6],
            (0..6).map(|i| 1.0 + 1e-5 * f64::from(i)).collect(),
            (0..6).map(|i| f64::from(i * i)).collect(),
        ];
        let y = (0..6).map(|i| 2.0 * columns[0][i] - 3.0 * columns[1][i] + 0.5 * columns[2][i]).collect();
        let found = solve(columns, y).unwrap();
        for (x, wanted) in found.x.iter().zip([2.0, -3.0, 0.5]) {
            assert!((x - wanted).abs() < 1e-8, "{x} instead of {wanted}");
        }
    }

    /// The residual is orthogonal to each column, and R⁻¹ R⁻ᵀ is (Aᵀ A)⁻¹.
    #[test]
    fn the_sum_is_least_and_the_inverse_is_that_of_the_columns() {
        let columns = vec![vec![1.0, 2.0, 3.0, 5.0], vec![4.0, -1.0, 0.5, 2.0], vec![0.0, 1.0, -2.0, 0.25]];
        let y = vec![1.0, -2.0, 7.0, 0.5];
        let Solution { x, inverse } = solve(columns.clone(), y.clone()).unwrap();
        let left: Vec<f64> = (0..4).map(|i| y[i] - (0..3).map(|j| columns[j][i] * x[j]).sum::<f64>()).collect();
        assert!(norm(&left) > 0.1, "it is no exact law");
        for i in 0..3 {
            assert!(dot(&left, &columns[i]).abs() < 1e-12);
            for j in 0..3 {
                let product: f64 = (0..3).map(|l| dot(&inverse[i], &inverse[l]) * dot(&columns[l], &columns[j])).sum();
                assert!((product - f64::from(u8::from(i == j))).abs() < 1e-12, "{i} {j}: {product}");
            }
        }
    }

    #[test]
    fn columns_that_depend_on_each_other_have_no_solution() {
        assert!(solve(vec![vec![0.6, 0.8], vec![0.6, 0.8]], vec![1.0, 1.0]).is_none());
        assert!(solve(vec![vec![f64::NAN, 0.8]], vec![1.0, 1.0]).is_none());
    }
}
