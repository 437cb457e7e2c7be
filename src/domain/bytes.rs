//! Search for bytes in texts, many at a time.

/// Bytes that are compared at once: as many as vector registers take.
const CHUNK_BYTES: usize = 32;

/// Returns the position of the first byte that `is` accepts. Every byte of a stretch is compared, which is faster than
/// to stop at the first where matches are rare.
pub fn position(bytes: &[u8], is: impl Fn(u8) -> bool) -> Option<usize> {
    let stretches = (0..).step_by(CHUNK_BYTES).zip(bytes.chunks(CHUNK_BYTES));
    for (at, stretch) in stretches {
        if stretch.iter().fold(false, |found, byte| found | is(*byte)) {
            return stretch.iter().position(|byte| is(*byte)).map(|place| at + place);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_match_is_found_at_any_position() {
        for length in [0, 1, 31, 32, 33, 64, 100] {
            for place in 0..length {
                let mut bytes = vec![b'a'; length];
                bytes[place] = b'x';
                bytes[length - 1] = b'x';
                assert_eq!(position(&bytes, |byte| byte == b'x'), Some(place), "{place} of {length}");
            }
            assert_eq!(position(&vec![b'a'; length], |byte| byte == b'x'), None);
        }
    }
}
