//! Numbers as people read them.

/// Returns a number with its thousands apart, as `12,345`.
pub fn group_digits(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_stand_apart() {
        assert_eq!([group_digits(7), group_digits(1_000), group_digits(1_234_567)], ["7", "1,000", "1,234,567"]);
    }
}
