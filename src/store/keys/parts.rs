//! Keys of the parts of prompts, by period.

use crate::domain::context::record::part::PartName;
use crate::domain::context::record::period::Period;

/// Prefix of parts, oldest periods first.
pub const PARTS: &str = "p.t/";

/// Prefix of the times of scans for unused parts, oldest periods first.
pub const PARTS_LOOKED: &str = "p.at/";

/// Returns the prefix of the parts of a period.
pub fn parts(period: Period) -> String {
    if period == Period::BEFORE { "p/".into() } else { format!("{PARTS}{:06}/", period.number()) }
}

/// Returns the key of a part.
pub fn part(period: Period, name: &PartName) -> String {
    format!("{}{name}", parts(period))
}

/// Returns the name in the key of a part of `period`.
pub fn part_of(period: Period, key: &str) -> Option<PartName> {
    PartName::parse(key.strip_prefix(&parts(period))?)
}

/// Returns the period in the key of a part under [`PARTS`].
pub fn period_of_part(key: &str) -> Option<Period> {
    Period::parse(key.strip_prefix(PARTS)?.split_once('/')?.0)
}

/// Returns the key of the time at which the last scan of a period's parts began.
pub fn parts_looked(period: Period) -> String {
    format!("{PARTS_LOOKED}{:06}", period.number())
}

/// Returns the period of a key of [`parts_looked`].
pub fn period_looked(key: &str) -> Option<Period> {
    Period::parse(key.strip_prefix(PARTS_LOOKED)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_period_lie_together_and_the_oldest_come_first() {
        let name = PartName::parse("LZlWEJPXmGQDmK7nCnuWag").unwrap();
        let [before, late, later] = ["0", "2943", "12943"].map(|text| Period::parse(text).unwrap());
        assert_eq!(part(late, &name), "p.t/002943/LZlWEJPXmGQDmK7nCnuWag");
        assert!(part(late, &name) < part(later, &name));
        assert_eq!(part(before, &name), "p/LZlWEJPXmGQDmK7nCnuWag");
        for period in [before, late, later] {
            assert_eq!(part_of(period, &part(period, &name)), Some(name.clone()));
        }
        assert_eq!(part_of(later, &part(late, &name)), None);
        assert_eq!(period_of_part(&part(late, &name)), Some(late));
        assert_eq!(period_of_part(&part(before, &name)), None);
        assert_eq!(parts_looked(late), "p.at/002943");
        assert_eq!(period_looked(&parts_looked(late)), Some(late));
    }
}
