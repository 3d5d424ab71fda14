//! How the tests of the plan judge randomness.

/// By how many standard deviations the chi-square of `seen` departs from what equally likely cells give.
pub(crate) fn chi_square(seen: &[u64]) -> f64 {
    if seen.len() < 2 {
        return 0.0;
    }
    let expected = seen.iter().sum::<u64>() as f64 / seen.len() as f64;
    let sum: f64 = seen.iter().map(|&count| (count as f64 - expected).powi(2) / expected).sum();
    let freedom = seen.len() as f64 - 1.0;
    (sum - freedom) / (2.0 * freedom).sqrt()
}
