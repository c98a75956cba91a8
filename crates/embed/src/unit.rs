//! Normalisation of vectors to length 1.

/// Scales a vector to length 1. A vector of zeros, or one with a value that is not finite, becomes
/// zeros.
pub fn normalise(vector: &mut [f32]) {
    let length = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
    for x in vector.iter_mut() {
        *x = if length.is_normal() { *x / length } else { 0.0 };
    }
}

#[cfg(test)]
mod tests {
    use super::normalise;

    #[test]
    fn a_vector_gets_length_one_and_a_broken_one_none() {
        let mut right = [3.0, 4.0];
        let mut empty = [0.0, 0.0];
        let mut broken = [f32::NAN, 1.0];

        normalise(&mut right);
        normalise(&mut empty);
        normalise(&mut broken);

        assert_eq!(right, [0.6, 0.8]);
        assert_eq!(empty, [0.0, 0.0]);
        assert_eq!(broken, [0.0, 0.0]);
    }
}
